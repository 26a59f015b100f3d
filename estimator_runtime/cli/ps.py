"""`estimator-runtime ps`: the running jobs of this user, and how far they are."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from estimator_runtime.cli.parser import Parser
from estimator_runtime.launch.job_file import running_jobs

_COLUMNS = ("task", "pid", "step", "steps/s", "restarts", "state", "log")


def add_to(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the parser of `ps`."""
    parser = commands.add_parser(
        "ps",
        help="list the running cluster jobs, and how far each task is",
        description="List the tasks of the jobs that you have started on this machine "
        "and that still\nrun: pid, step, steps a second, restarts and log of each. "
        "Nothing is changed.",
    )
    parser.set_defaults(describe=describe)
    parser.add_argument(
        "--json", action="store_true", help="print a JSON array with an object per job"
    )


def describe(options: argparse.Namespace) -> tuple[str, int]:
    """List the running jobs of this user.

    Returns:
        (text, exit status: 0).
    """
    jobs = running_jobs()
    if options.json:
        return json.dumps(jobs, indent=2), 0
    if not jobs:
        return "no job of this user runs on this machine", 0
    return "\n\n".join(map(as_text, jobs)), 0


def as_text(job: Mapping[str, Any]) -> str:
    """Return a job as two lines about it and a table of its tasks."""
    of = "" if job["last_step"] is None else f" of {job['last_step']}"
    saved = "none" if job["saved_step"] is None else f"step {job['saved_step']}"
    return "\n".join(
        [
            f"job {job['pid']} ({job['backend']}): {shlex.join(job['command'])}",
            f"  model directory {job['model_dir'] or 'not known yet'}, "
            f"step {job['step']}{of}, checkpoint {saved}, restarts {job['restarts']}",
            *_table([_COLUMNS, *map(_row, job["tasks"])]),
        ]
    )


def _row(task: Mapping[str, Any]) -> tuple[str, ...]:
    rate = None if task["rate"] is None else f"{task['rate']:.1f}"
    state = task["state"] or _activity(task)
    values = (task["pid"], task["step"], rate, task["restarts"], state)
    shown = ("-" if value is None else str(value) for value in values)
    return task["name"], *shown, task["log"] or "-"


def _activity(task: Mapping[str, Any]) -> str:
    """Return what a task does that is well: it trains, or it has evaluated."""
    evaluated = task["metrics"].get("global_step")
    if task["step"] is not None:
        return "training"
    return "evaluating" if evaluated is None else f"evaluated step {evaluated:.0f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
