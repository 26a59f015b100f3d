"""Print the share of statements that ran, for each package.

Takes one argument, a report of `coverage json`.
"""

import collections
import json
import pathlib
import sys

_PACKAGE = "estimator_runtime"


def main(report: str) -> None:
    """Print a line for each folder of the package, and one for all."""
    ran: dict[str, set[tuple[str, int]]] = collections.defaultdict(set)
    there: dict[str, set[tuple[str, int]]] = collections.defaultdict(set)
    for file, found in json.loads(pathlib.Path(report).read_text())["files"].items():
        # Processes may import the package from the checkout: its lines count once.
        *_, module = file.rpartition(f"{_PACKAGE}/")
        folder, slash, _ = module.partition("/")
        for package in (f"{_PACKAGE}/{folder}" if slash else _PACKAGE, "all"):
            executed = {(module, line) for line in found["executed_lines"]}
            ran[package] |= executed
            there[package] |= executed
            there[package] |= {(module, line) for line in found["missing_lines"]}
    for package in sorted(there):
        count, total = len(ran[package]), len(there[package])
        share = 100 * count / max(1, total)
        print(f"{package:40}{count:7} of {total:6}{share:7.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
