"""What checkpoints cost somebody's own training, and how often it should save."""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from benchmarks.cadence.report import BASELINE, Training, figures
from benchmarks.harness import measurement
from estimator_runtime.checkpoint import event_file

_NEVER = 10**9  # steps; the first and the last are saved all the same
_MOST_CADENCES = 3
_FITTING_SAVES = 4  # into a run; with fewer a cadence says little on their cost
_START_SECS = 300  # for imports, the graph and the first steps
_ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = str(pathlib.Path(__file__).with_name("program.py"))
# Three rounds have a median that one bad run does not move.
_MTBF_HOURS, _SECS, _ROUNDS = 24.0, 20.0, 3


class CadenceError(Exception):
    """The script cannot be measured; the message says what would do."""


def add_options(parser):
    """Add the options of the command."""
    parser.add_argument(
        "--script",
        required=True,
        nargs="...",
        metavar="SCRIPT [ARGS]",
        help="the script to measure, with its arguments; comes last",
    )
    parser.add_argument(
        "--mtbf-hours",
        type=float,
        default=_MTBF_HOURS,
        metavar="HOURS",
        help="hours from one failure or preemption to the next (default: %(default)g)",
    )
    parser.add_argument(
        "--secs",
        type=float,
        default=_SECS,
        help="how long each run trains, beside its start (default: %(default)g)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=_ROUNDS,
        help="how often each cadence is run (default: %(default)s)",
    )


def check(args):
    """Refuse options that cannot be.

    Raises:
        CadenceError: With one line that says what would do.
    """
    if not args.script:
        raise CadenceError("--script is empty; give a script, and its arguments")
    if not os.path.isfile(args.script[0]):
        raise CadenceError(f"--script {args.script[0]!r} is no file; give a script")
    for name, value in (("--mtbf-hours", args.mtbf_hours), ("--secs", args.secs)):
        if not 0 < value < float("inf"):
            raise CadenceError(f"{name} is {value:g}; give a number above 0")
    if args.rounds < 1:
        raise CadenceError(f"--rounds is {args.rounds}; give 1 or more")
    if "cluster" in os.environ.get("TF_CONFIG", ""):
        raise CadenceError(
            "TF_CONFIG has a cluster, but one process is measured; unset it"
        )


def measure(args, announce):
    """Run the script without checkpoints and with several cadences, interleaved.

    Args:
        args: The options, as `check` has let them pass.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON; its shape is in README.md.

    Raises:
        CadenceError: If the script fails, or does not train long enough.
    """
    run = functools.partial(_run, args.script, args.secs)
    machine = measurement.machine()
    announce(f"pilot: {args.secs:g} s")
    pilot = run(_NEVER)
    cadences = choose_cadences(pilot.steps)
    announce(
        f"{pilot.steps_per_sec:.3g} steps/s; saving every "
        f"{', '.join(map(str, cadences))} steps"
    )
    ways = {BASELINE: functools.partial(run, _NEVER)}
    ways |= {str(every): functools.partial(run, every) for every in cadences}
    found = measurement.interleave(ways, args.rounds, announce)
    return {
        "benchmark": "cadence",
        "baseline": BASELINE,
        "quick": False,
        "machine": machine,
        "script": args.script,
        "secs": args.secs,
        "pilot_steps_per_sec": pilot.steps_per_sec,
        **figures(found, args.mtbf_hours, pilot.steps_per_sec),
    }


def choose_cadences(steps):
    """Return steps from save to save, such that some of them fit into a run.

    Args:
        steps: How many a run has.

    Returns:
        At most three of 1, 3, 10, 30, ..., the largest first; at least four of each
        would fit, if there are as many steps.
    """
    ladder = [factor * 10**power for power in range(9) for factor in (1, 3)]
    fitting = [every for every in ladder if every <= max(1, steps // _FITTING_SAVES)]
    return fitting[: -_MOST_CADENCES - 1 : -1]


def _run(script, secs, every_steps):
    """Run the script in a process of its own; give its `Training`."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = pathlib.Path(folder, "result"), pathlib.Path(folder, "log")
        settings = {"every_steps": every_steps, "secs": secs, "result": str(result)}
        command = [sys.executable, _PROGRAM, json.dumps(settings), *script]
        paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(_ROOT)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                status = process.wait(_START_SECS + 5 * secs)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                found = json.loads(result.read_text()) if result.exists() else {}
                saves = _saves(found)
        if "steps" not in found:
            raise CadenceError(_failure(script, status, found, log, secs))
    return Training(
        first_step=found["first_step"],
        steps=found["steps"],
        secs=found["secs"],
        saves=saves,
    )


def _saves(found):
    """Read what the checkpoints of a copy have cost, and remove it."""
    if "model_dir" not in found:
        return ()
    try:
        steps = event_file.by_step(found["model_dir"])
    finally:
        shutil.rmtree(found["model_dir"], ignore_errors=True)
    names = ("bytes", "blocked_secs", "write_secs")
    return tuple(
        (step, *(values[f"checkpoint/{name}"] for name in names))
        for step, values in sorted(steps.items())
        if "checkpoint/bytes" in values
    )


def _failure(script, status, found, log, secs):
    lines = log.read_text(errors="replace").splitlines()
    if status is None:
        limit = _START_SECS + 5 * secs
        what = f"was not done after {limit:g} s; is its first step that slow?"
    elif status:
        what = f"ended with status {status}:"
    elif "model_dir" in found:
        what = "trained too few steps; let it train longer, or give a smaller --secs"
    else:
        what = "trained no tf.estimator Estimator; only these can be measured"
    shown = [f"  {line}" for line in lines[-15:]] if status != 0 else []
    return "\n".join([f"{script[0]} {what}", *shown])
