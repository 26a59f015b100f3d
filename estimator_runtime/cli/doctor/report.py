"""The report of `doctor`: all checks in their order, and the exit status."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from estimator_runtime.cli import run_flags
from estimator_runtime.cli.doctor import (
    batches,
    folder,
    packages,
    probe,
    script,
    task,
    tensorflow_1,
)
from estimator_runtime.cli.doctor.finding import (
    NOTE,
    PROBLEM,
    Finding,
    as_json,
    as_text,
)
from estimator_runtime.cli.script import check_rereadable, check_script
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.errors import ConfigError, EstimatorRuntimeError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor` to its parser."""
    parser.add_argument(
        "--model-dir",
        metavar="FOLDER",
        help="model directory to look at (default: the model_dir of TF_CONFIG)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    parser.add_argument(
        "--patches",
        action="store_true",
        help="check nothing; list the differences between TensorFlows that are bridged "
        "here, for a bug report",
    )
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="a script to read, but not to run"
    )


def describe(
    options: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> tuple[str, int]:
    """Run all checks, and return what they found.

    Args:
        options: The parsed options of `doctor`.
        environ: The environment.

    Returns:
        (text, exit status: 1 if there is a problem, else 0).

    Raises:
        UsageError: If the script cannot be run, or is a pipe.
        EstimatorRuntimeError: With `--patches`, if TensorFlow cannot be imported.
    """
    if options.patches:
        patches = probe.ask(())["patches"]
        return json.dumps(patches, indent=2) if options.json else as_list(patches), 0
    if options.script is not None:
        check_script(options.script)
        check_rereadable(options.script)
    found = list(_examine(options, environ))
    text = json.dumps(as_json(found), indent=2) if options.json else as_text(found)
    return text, int(any(each.state == PROBLEM for each in found))


def as_list(patches: Mapping[str, Mapping[str, str]]) -> str:
    """Return the patches as text, grouped by their state.

    Args:
        patches: The state and the reason of each, by name.
    """
    lines = []
    for state in dict.fromkeys(each["state"] for each in patches.values()):
        lines.append(f"{state}:")
        lines += [
            f"  {name}: {each['reason']}"
            for name, each in patches.items()
            if each["state"] == state
        ]
    return "\n".join(lines)


def _examine(
    options: argparse.Namespace, environ: Mapping[str, str]
) -> Iterator[Finding]:
    installed = packages.examine()
    yield installed
    uses, unparsable = script.load(options.script)
    modules = script.find_own_modules(options.script) if uses else []
    try:
        run_flags.check(environ)
        wrong_setting = None
    except ConfigError as error:
        wrong_setting = str(error)
    answer = None
    if installed.state == PROBLEM or wrong_setting:
        what = "settings" if wrong_setting else "packages"
        text = f"TensorFlow was not asked: fix the {what} first"
        yield Finding(NOTE, "devices", text)
    else:
        try:
            first_path = os.path.dirname(os.path.realpath(options.script or ""))
            names = {*(uses.names if uses else ())}.union(
                *(m.names for _, m in modules)
            )
            answer = probe.ask(sorted(names), first_path if options.script else None)
            yield probe.examine_devices(answer, environ)
        except EstimatorRuntimeError as error:
            yield Finding(PROBLEM, "TensorFlow", str(error))
    if wrong_setting:
        yield Finding(PROBLEM, "settings", wrong_setting)
    config, finding = task.read(environ)
    yield finding
    if config is not None and config.cluster:
        yield from task.examine_ports(config)
    yield from folder.examine(options.model_dir, config)
    yield packages.examine_ray()
    yield packages.examine_activation(environ)
    if unparsable:
        yield unparsable
    elif uses:
        yield from _examine_program(options.script, uses, modules, answer, environ)
        files = [(os.path.basename(options.script), uses), *modules]
        yield from batches.examine([(name, its.input) for name, its in files], config)


def _examine_program(
    path: str,
    uses: script.Uses,
    modules: list[tuple[str, script.Uses]],
    answer: Mapping[str, Any] | None,
    environ: Mapping[str, str],
) -> Iterator[Finding]:
    """Check a script and its own modules; `answer` is that of `probe.ask`, or None."""
    yield script.introduce(path, uses, modules)
    files = [(os.path.basename(path), uses), *modules]
    old: set[str] = set()
    if answer is not None:
        old = {n for _, its in files for n in tensorflow_1.of_version_1(its, answer)}
        is_on = environ.get(mode.VARIABLE) == "1"
        if old and (is_on or tensorflow_1.is_written_for_it(old)):
            yield from tensorflow_1.examine(files, answer, is_on)
        else:
            old = set()
    for name, its in files:
        yield from script.examine_names(name, its, answer, old)
    yield from script.examine(path, uses, answer)
