"""`estimator-runtime run`: one process becomes the program, or launches a cluster."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from estimator_runtime import install, reporting
from estimator_runtime.cli import run_flags, script
from estimator_runtime.cli.parser import (
    EXIT_STATUSES,
    NAME,
    Parser,
    add_program,
    misplaced_option,
)
from estimator_runtime.config import proxies
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.config.options import parse_switch
from estimator_runtime.config.role import TaskType
from estimator_runtime.config.tf_config import check_form, task_name
from estimator_runtime.errors import LaunchError, UsageError
from estimator_runtime.output import json_log, log_filter, tensorboard
from estimator_runtime.output.terminal import write_error
from estimator_runtime.patching import patch
from estimator_runtime.patching.injection import garbage_collector
from estimator_runtime.patching.table import PROGRAM_SESSION
from estimator_runtime.signals.inbox import SignalInbox

if TYPE_CHECKING:
    from estimator_runtime.launch import Job, JobHandle, Outcome
    from estimator_runtime.launch.terminal.console import Console

STOCK_SESSION = "ESTIMATOR_RUNTIME_STOCK_SESSION"
_KEEP_STOCK = "to keep TensorFlow's tf.compat.v1.train.MonitoredTrainingSession"
_POLL_SECS = 0.5
# The options that are fields of a `Job`. `render` has some of them.
_OF_JOB = (
    *("max_restarts", "refill_restarts_secs", "heartbeat_timeout_secs"),
    *("evaluation_timeout_secs", "log_dir"),
)


def add_to(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the parser of `run`."""
    parser = commands.add_parser(
        "run",
        help="run an untouched script or module that uses tf.estimator",
        usage=f"{NAME} run [options] SCRIPT [ARGS...]\n"
        f"       {NAME} run [options] -m MODULE [ARGS...]",
        description="Run an untouched script as `python SCRIPT [ARGS...]` does, with "
        "tf.estimator\nin place on whatever TensorFlow is installed. All that follows "
        "SCRIPT or MODULE\nis the script's. With --workers, --ps or --evaluator, run "
        "it as a cluster of\nprocesses on this machine; with --backend ray, of several "
        "machines.",
        epilog=EXIT_STATUSES,
    )
    run_flags.add_to(parser)
    add_program(parser)
    command = functools.partial(_run, parser)
    parser.set_defaults(command=command, takes_program=True)


def _run(parser: Parser, options: argparse.Namespace) -> int:
    program, *arguments = options.program
    run: Callable[[str, Sequence[str]], int]
    if options.is_module:
        script.check_module(program)
        run = script.run_module
    else:
        script.check_script(program)
        run = script.run_script
    run_flags.carry(options, os.environ)
    if options.is_module and mode.is_wanted():
        mode.add_package(program)
    is_cluster = run_flags.is_cluster_wanted(options)
    is_import_spared = garbage_collector.is_wanted(os.environ)
    # Each line of a job's JSON log is an object, and a task has the launcher's hint.
    has_no_hint = reporting.VARIABLE in os.environ or (
        is_cluster and options.log_format == "json"
    )
    file = f"{program.replace('.', os.sep)}.py" if options.is_module else program
    hint = None if has_no_hint else misplaced_option(arguments, parser, file)
    tensorboard.request(options.tensorboard)
    if is_cluster:
        if not options.is_module:
            script.check_rereadable(program)
        return _run_with_hint(hint, lambda: launch(options))
    reporting.start(os.environ)
    # Only the form is checked, because only the script knows whether it needs a chief
    # or a task: under a multi-worker strategy, for example, worker 0 leads.
    cluster = check_form(os.environ)
    proxies.exempt(itertools.chain(*cluster.values()), os.environ)
    if options.log_format == "json":
        json_log.start(task_name(os.environ) or "main")
    log_filter.start(os.environ)
    log_filter.set_native_level(os.environ)
    install()
    if not parse_switch(os.environ.get(STOCK_SESSION, "0"), STOCK_SESSION, _KEEP_STOCK):
        patch.schedule([PROGRAM_SESSION], are_required=False)
    if is_import_spared:
        garbage_collector.spare_import()
    run_program = functools.partial(run, program, arguments)
    return _run_here(lambda: _run_with_hint(hint, run_program))


def _run_with_hint(hint: str | None, run: Callable[[], int]) -> int:
    """Run the program, with a hint before its output, and once more if it fails."""
    if hint is None:
        return run()
    text, status = f"{NAME}: {hint}\n", 1
    write_error(text)
    try:
        status = run()
        return status
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else bool(error.code)
        raise
    except KeyboardInterrupt:
        status = 0  # It was stopped.
        raise
    finally:
        if 0 < status < 128:  # Above, it is that of a signal.
            write_error(text)


def _run_here(run: Callable[[], int]) -> int:
    """Run the program in this process, and return or end with its exit status."""
    try:
        status = run()
        is_held_up = script.waits_at_exit(None)
    except SystemExit as error:
        code = 0 if error.code is None else error.code
        # Python prints what is no number.
        if not isinstance(code, int) or not script.waits_at_exit(error):
            raise
        status, is_held_up = code, True
    except KeyboardInterrupt as error:
        if not script.waits_at_exit(error):
            raise
        status, is_held_up = -signal.SIGINT, True
    if is_held_up:
        script.end(status)
    return status


def launch(options: argparse.Namespace) -> int:
    """Run the program as a cluster, wait for its end, and return the exit status.

    Raises:
        UsageError: If the options of `run` define no valid job; see `job_of`.
        ConfigError: If the job cannot be started.
    """
    from estimator_runtime.launch import get_backend, starter
    from estimator_runtime.launch.terminal.console import Console

    job = job_of(options)
    console = Console(as_json=options.log_format == "json")
    backend = get_backend(options.backend, console=console, **_backend_options(options))
    wait = functools.partial(_wait, port=options.tensorboard, console=console)
    starts = starter.JobStarter(job, backend, wait, console.say)
    # The first Ctrl-C, SIGTERM or notice stops the job gracefully, another one at once.
    with contextlib.closing(SignalInbox(starts.stop)):
        try:
            outcome = starts.run()
        except starter.StoppedBeforeStart as stopped:
            [number] = stopped.args
            name = signal.Signals(number).name
            console.conclude(f"stopped by {name} before the start", is_failure=True)
            return starter.exit_status_of(number)
        except LaunchError as error:
            console.conclude(f"error: {error}", is_failure=True)
            return 1
        console.conclude(str(outcome), is_failure=bool(outcome.exit_status))
        return outcome.exit_status


def _wait(handle: JobHandle, port: int | str | None, console: Console) -> Outcome:
    """Wait for the end of a job, and start TensorBoard once its folder is known."""
    while not handle.has_ended(_POLL_SECS):
        tensorboard.start_if_requested(handle.model_dir(), console.say)
    if port is not None and not tensorboard.has_started():
        console.say(
            "TensorBoard was not started: no task has said in time which its model "
            "directory is, as tf.estimator.train_and_evaluate does"
        )
    return handle.wait()


def _backend_options(options: argparse.Namespace) -> dict[str, Any]:
    if options.backend == "local":
        return {
            "warm": not options.cold,
            "private_network": bool(options.private_network),
            "gpus_per_worker": options.gpus_per_worker,
        }
    if options.backend != "ray":
        return {}
    return {
        "address": options.ray_address or "auto",
        "placement": options.placement or "spread",
        "placement_timeout_secs": options.placement_timeout_secs,
        "working_dir": options.working_dir,
    }


def job_of(options: argparse.Namespace) -> Job:
    """Return the job that the options of `run` or `render` define.

    Raises:
        UsageError: If no task would train, or if the script is not in the folder that
            is copied to the nodes.
        ConfigError: If a value is invalid.
    """
    from estimator_runtime.launch import Job, Resources

    replicas = {
        TaskType.CHIEF: 0 if options.no_chief else 1,
        TaskType.WORKER: options.workers or 0,
        TaskType.PS: options.ps or 0,
        TaskType.EVALUATOR: int(bool(options.evaluator)),
    }
    if options.no_chief and not options.workers:
        raise UsageError(
            "--no-chief without workers leaves nobody to train; add --workers N, or "
            "leave out --no-chief"
        )
    trainer = Resources(
        **_known(cpus=options.cpus_per_worker, gpus=options.gpus_per_worker)
    )
    resources = {
        TaskType.CHIEF: trainer,
        TaskType.WORKER: trainer,
        TaskType.PS: Resources(**_known(cpus=options.cpus_per_ps)),
        TaskType.EVALUATOR: Resources(cpus=trainer.cpus),
    }
    program, *arguments = options.program
    working_dir = getattr(options, "working_dir", None)
    if working_dir is not None and not options.is_module:
        program = _in_copy(program, working_dir)
    command = (*(["-m"] if options.is_module else []), "--", program, *arguments)
    given = _known(**{name: getattr(options, name, None) for name in _OF_JOB})
    return Job(command=command, replicas=replicas, resources=resources, **given)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _in_copy(script: str, folder: str) -> str:
    """Return the path of a script relative to the folder that is copied."""
    path = os.path.relpath(os.path.realpath(script), os.path.realpath(folder))
    if path.startswith(os.pardir + os.sep):
        raise UsageError(
            f"script {script!r} is not in --working-dir {folder!r}, which is copied to "
            "the nodes; name a folder that has it"
        )
    return path
