"""How much memory a process has that evaluates or predicts a thousand times.

An Estimator keeps graphs and sessions from call to call. What it keeps must not grow
with the calls.
"""

import re
import tempfile

from benchmarks.harness import measurement
from benchmarks.harness.report import headline, machine_lines
from benchmarks.job import benchmark

_COUNTS, _QUICK_COUNTS = (10, 100, 500, 1000), (1, 3)
_LINE = re.compile(r"^memory_mb (\d+) (\S+) (\S+)$", re.MULTILINE)


def measure(quick, announce):
    """Make many calls in one process, for each kind of call.

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON; its shape is in README.md.
    """
    counts = _QUICK_COUNTS if quick else _COUNTS
    report = measurement.new_report("memory", None, quick, calls={})
    with tempfile.TemporaryDirectory() as trained:
        benchmark.train(trained, announce)
        for call in ("evaluate", "predict"):
            announce(f"{counts[-1]} calls of {call}")
            words = ("memory", trained, "--call", call, "--calls", *map(str, counts))
            output = benchmark.run("ours", (benchmark.PROGRAM, *words)).output
            found = _LINE.findall(output)
            report["calls"][call] = {
                "memory_mb": {number: float(mb) for number, mb, _ in found},
                "in_use_mb": {number: float(mb) for number, _, mb in found},
            }
    return report


def render(report):
    """Return a report as Markdown: a row for each kind of call."""
    counts = list(next(iter(report["calls"].values()))["memory_mb"])
    lines = [
        *(headline(report), "", *machine_lines(report["machine"]), ""),
        "Memory in MB after so many calls in one process: as it is, and without "
        "garbage and freed memory.",
        "",
        f"| | {' | '.join(counts)} |",
        "|---" * (len(counts) + 1) + "|",
    ]
    for call, own in report["calls"].items():
        for title, key in (("", "memory_mb"), (", in use", "in_use_mb")):
            cells = [f"{own[key][count]:.0f}" for count in counts]
            lines.append(f"| {call}{title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
