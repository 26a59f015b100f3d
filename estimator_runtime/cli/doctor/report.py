"""The report of `doctor`: all checks in their order, and the exit status."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator

from estimator_runtime.cli import run_flags
from estimator_runtime.cli.doctor import devices, environment, probe, script
from estimator_runtime.cli.doctor.finding import NOTE, PROBLEM, Finding, Subject
from estimator_runtime.cli.parser import NAME, Parser
from estimator_runtime.cli.script import check_rereadable, check_script
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.tf_internals import versions


def _check_settings(subject: Subject) -> Iterator[Finding]:
    """Check the environment variables; there is no finding if they are valid."""
    run_flags.check(subject.environ)
    yield from ()


# Each check by what it is about. The error that one raises is a problem.
CHECKS: dict[str, Callable[[Subject], Iterator[Finding]]] = {
    "packages": environment.check_versions,
    "devices": devices.check_devices,
    "settings": _check_settings,
    "TF_CONFIG": environment.check_config,
    "model dir": environment.check_folder,
    "activation": environment.check_activation,
    "script": script.check_script,
}


def add_to(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the parser of `doctor`."""
    parser = commands.add_parser(
        "doctor",
        help="find what keeps a training from starting here, and how to fix it",
        usage=f"{NAME} doctor [options] [SCRIPT]",
        description="Look at the packages, devices, TF_CONFIG, model directory and, "
        "where one is given,\nthe script, which is not run. Nothing is changed. The "
        "exit status is 1 if there is\na problem; its line says how to fix it.",
    )
    parser.set_defaults(describe=describe)
    parser.add_argument(
        "--model-dir",
        metavar="FOLDER",
        help="model directory to look at (default: the model_dir of TF_CONFIG)",
    )
    parser.add_argument(
        "--tf1",
        action="store_true",
        help="read the script as 'run --tf1' runs it: as one for TensorFlow 1",
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


def describe(options: argparse.Namespace) -> tuple[str, int]:
    """Run all checks, and return what they found.

    Returns:
        (text, exit status: 1 if there is a problem, else 0).

    Raises:
        UsageError: If the script cannot be run, or is a pipe.
        EstimatorRuntimeError: With `--patches`, if TensorFlow cannot be imported.
    """
    if options.patches:
        answer = probe.ask(())
        shown = json.dumps(answer.patches, indent=2) if options.json else answer.report
        return shown, 0
    if options.script is not None:
        check_script(options.script)
        check_rereadable(options.script)
    # A newer TensorFlow is a finding.
    logging.getLogger(versions.__name__).setLevel(logging.ERROR)
    environ = {**os.environ, mode.VARIABLE: "1"} if options.tf1 else os.environ
    subject = Subject(
        environ=environ, script=options.script, model_dir=options.model_dir
    )
    found = list(examine(subject))
    problems = sum(each.state == PROBLEM for _, each in found)
    if options.json:
        findings = [
            {"about": about, **dataclasses.asdict(each)} for about, each in found
        ]
        found_all = {"problems": problems, "findings": findings}
        return json.dumps(found_all, indent=2), int(problems > 0)
    width = max(len(about) for about, _ in found)
    lines = [f"{each.state:<7}  {about:<{width}}  {each.text}" for about, each in found]
    noun = "problem" if problems == 1 else "problems"
    notes = sum(each.state == NOTE for _, each in found)
    read = f"; read the note{'s' * (notes > 1)} above" if notes else ""
    lines.append(f"{problems} {noun}" if problems else f"no problem found{read}")
    return "\n".join(lines), int(problems > 0)


def examine(
    subject: Subject, checks: Iterable[str] = CHECKS
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of some checks, each after what it is about."""
    for about in checks:
        try:
            for finding in CHECKS[about](subject):
                yield about, finding
        except EstimatorRuntimeError as error:
            # "TF_CONFIG: ", for example, stands before the text already.
            text = str(error).removeprefix(f"{about}: ").removeprefix("RunConfig: ")
            yield about, Finding(PROBLEM, text)
