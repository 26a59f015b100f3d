"""`estimator-runtime run`: one process becomes the program, or launches a cluster."""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import signal
from collections.abc import Callable, Sequence

from estimator_runtime import install, reporting
from estimator_runtime.cli import run_flags, script
from estimator_runtime.cli.job import launch
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
from estimator_runtime.config.tf_config import check_form, task_name
from estimator_runtime.output import json_log, log_filter, tensorboard
from estimator_runtime.output.terminal import write_error
from estimator_runtime.patching import patch
from estimator_runtime.patching.injection import garbage_collector
from estimator_runtime.patching.table import PROGRAM_SESSION

STOCK_SESSION = "ESTIMATOR_RUNTIME_STOCK_SESSION"
_KEEP_STOCK = "to keep TensorFlow's tf.compat.v1.train.MonitoredTrainingSession"


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
