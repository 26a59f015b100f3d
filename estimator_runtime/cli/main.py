"""The command `estimator-runtime`, whose parsing and help need no TensorFlow.

Each subcommand is a parser, and a function that takes the parsed options and returns
the exit status. A mistake of the user's reaches `main` as an EstimatorRuntimeError and
is printed as one line. A program's own exceptions never get this far.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from estimator_runtime import __version__, install, reporting
from estimator_runtime.cli import (
    activation,
    checkpoints,
    ps,
    render,
    run_flags,
    script,
    tf1,
)
from estimator_runtime.cli import run as cli_run
from estimator_runtime.cli.doctor import report
from estimator_runtime.cli.parser import (
    Parser,
    check_first,
    misplaced_option,
    unknown_argument,
    write_out,
)
from estimator_runtime.config import proxies
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.config.tf_config import check_form
from estimator_runtime.errors import EstimatorRuntimeError, UsageError
from estimator_runtime.output import json_log, log_filter, tensorboard
from estimator_runtime.output.terminal import printable
from estimator_runtime.patching.injection import garbage_collector
from estimator_runtime.patching.injection.process_name import name_after_task, task_name

_NAME = "estimator-runtime"

_EXIT_STATUSES = """\
exit status:
  0  success
  1  a setting or the environment does not allow it (TF_CONFIG, installed packages),
     the script cannot be parsed, a task of the cluster has failed for good,
     (checkpoints) a restart would not go on from the newest checkpoint, or (doctor,
     status, enable) there is a problem
  2  the command line is wrong, or the script or module it names cannot be found
  3  the training of a cluster is done, and only its evaluation has failed
  129, 130, 138, 140, 143, 152  a training was stopped by SIGHUP, Ctrl-C, SIGUSR1,
     SIGUSR2, SIGTERM or SIGXCPU (a cluster: 143 for all but Ctrl-C). Normally its last
     step is saved, and its last lines say where
Otherwise it is the status of the script: that of sys.exit(), 1 after an exception that
it does not catch, 130 (in a shell) after Ctrl-C.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments without the program's name; None for those of this process.

    Returns:
        The exit status, as `estimator-runtime --help` lists them.

    Raises:
        SystemExit: After --help and --version, or if the script under `run` raises it.
        KeyboardInterrupt: If the script under `run` raises it; already reported.
    """
    try:
        _check_current_folder()
        options = _parse(argv)
        return options.command(options)
    except EstimatorRuntimeError as error:
        reporting.send_error(type(error))
        print(f"{_NAME}: error: {printable(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _check_current_folder() -> None:
    """Raise `EstimatorRuntimeError` if the current folder has been deleted."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise EstimatorRuntimeError(
            "the current folder has been deleted; change to one that exists, such as: "
            "cd ~"
        ) from error


def parsers() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of the command line, and the one of each command by name."""
    parser = Parser(
        prog=_NAME,
        description="Train tf.estimator code, unchanged, on today's TensorFlow.",
        epilog=_EXIT_STATUSES,
    )
    parser.add_argument("--version", action="version", version=f"{_NAME} {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_run(commands)
    _add_checkpoints(commands)
    _add_ps(commands)
    _add_doctor(commands)
    _add_render(commands)
    _add_activation(commands)
    tf1.add_command(commands)
    return parser, commands.choices


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser, commands = parsers()
    arguments = sys.argv[1:] if argv is None else argv
    first = next(iter(arguments), "")
    if first.endswith(".py"):
        raise UsageError(f"{first!r} is not a command; to run it: {_NAME} run {first}")
    check_first(arguments, parser, commands)
    if arguments[:1] == ["run"]:
        arguments = ["run", *run_flags.with_port(commands["run"], arguments[1:])]
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = {**commands, "": parser}  # the options before a command
        problem = unknown_argument(unknown[0], arguments, options, known)
        raise UsageError(problem)
    if not hasattr(options, "command"):
        parser.error("no COMMAND given")
    return options


def _add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run an untouched script or module that uses tf.estimator",
        usage=f"{_NAME} run [options] SCRIPT [ARGS...]\n"
        f"       {_NAME} run [options] -m MODULE [ARGS...]",
        description="Run an untouched script as `python SCRIPT [ARGS...]` does, with "
        "tf.estimator\nin place on whatever TensorFlow is installed. All that follows "
        "SCRIPT or MODULE\nis the script's. With --workers, --ps or --evaluator, run "
        "it as a cluster of\nprocesses on this machine; with --backend ray, of several "
        "machines.",
        epilog=_EXIT_STATUSES,
    )
    run_flags.add_training_options(parser)
    run_flags.add_tensorboard_option(parser)
    run_flags.add_cluster_options(parser)
    _add_program(parser)
    parser.set_defaults(command=functools.partial(_run, parser))


def _run(parser: Parser, options: argparse.Namespace) -> int:
    _drop_separator(options)
    program, *arguments = options.program
    check: Callable[[str], None]
    run: Callable[[str, Sequence[str]], int]
    if options.is_module:
        check, run = script.check_module, script.run_module
    else:
        check, run = script.check_script, script.run_script
    check(program)
    run_flags.carry(options, os.environ)
    if options.is_module and mode.is_wanted():
        mode.add_package(program)
    log_filter.set_native_level(os.environ)
    is_cluster = run_flags.is_cluster_wanted(options)
    is_import_spared = garbage_collector.is_wanted(os.environ)
    if options.tensorboard is not None:
        tensorboard.check(options.tensorboard)
    if is_cluster:
        if not options.is_module:
            script.check_rereadable(program)
        return cli_run.launch(options)
    tensorboard.request(options.tensorboard)
    reporting.start(os.environ)
    # Only the form is checked, because only the script knows whether it needs a chief
    # or a task: under a multi-worker strategy, for example, worker 0 leads.
    cluster = check_form(os.environ)
    proxies.exempt(itertools.chain(*cluster.values()), os.environ)
    if options.log_format == "json":
        json_log.start(task_name(os.environ) or "main")
    name_after_task(os.environ)
    log_filter.start(os.environ)
    install()
    if is_import_spared:
        garbage_collector.spare_import()
    try:
        status = run(program, arguments)
        is_held_up = script.waits_at_exit(None)
    except SystemExit as error:
        if problem := misplaced_option(error, arguments, parser):
            print(f"{_NAME}: {problem}", file=sys.stderr)
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


def _add_checkpoints(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "checkpoints",
        help="list a training's checkpoints, and which one a restart would use",
        description="List the checkpoints of a training. Nothing is changed.\nThe exit "
        "status is 1 if a restart would not go on from the newest one, or has none.",
    )
    checkpoints.add_options(parser)
    parser.set_defaults(
        command=_print,
        describe=lambda options: checkpoints.describe(options, time.time()),
    )


def _add_ps(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "ps",
        help="list the running cluster jobs, and how far each task is",
        description="List the tasks of the jobs that you have started on this machine "
        "and that still\nrun: pid, step, steps a second, restarts and log of each. "
        "Nothing is changed.",
    )
    ps.add_options(parser)
    parser.set_defaults(command=_print, describe=ps.describe)


def _add_doctor(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="find what keeps a training from starting here, and how to fix it",
        usage=f"{_NAME} doctor [options] [SCRIPT]",
        description="Look at the packages, devices, TF_CONFIG, ports, model directory "
        "and, where one\nis given, the script, which is not run. Nothing is changed. "
        "The exit status is 1\nif there is a problem; its line says how to fix it.",
    )
    report.add_options(parser)
    parser.set_defaults(command=_print, describe=report.describe)


def _add_render(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "render",
        help="print Kubernetes manifests of a job",
        usage=f"{_NAME} render --backend kubernetes --image IMAGE [options] SCRIPT "
        "[ARGS...]",
        description="Print a job as manifests for `kubectl apply -f`. Nothing is "
        "started, and neither the\nscript nor the image is looked at. What follows "
        "SCRIPT is the script's.",
    )
    render.add_options(parser)
    _add_program(parser)
    parser.set_defaults(command=_render)


def _render(options: argparse.Namespace) -> int:
    _drop_separator(options)
    write_out(render.render(options))
    return 0


def _add_program(parser: Parser) -> None:
    parser.add_argument(
        "-m",
        action="store_true",
        dest="is_module",
        help="what follows is the name of a module or package, found as python -m does",
    )
    # PARSER, not REMAINDER: it does not consume the options before the program, and it
    # leaves all arguments after it alone, even "--" and those that look like ours.
    parser.add_argument(
        "program",
        metavar="SCRIPT",
        nargs=argparse.PARSER,
        help="path of the script, and its arguments",
    )


def _drop_separator(options: argparse.Namespace) -> None:
    # Python 3.10 to 3.12 keep the "--" of `run -- SCRIPT`; newer versions remove it.
    if options.program[0] == "--" and len(options.program) > 1:
        del options.program[0]


def _add_activation(commands: argparse._SubParsersAction[Parser]) -> None:
    for name, (describe, help, description) in activation.COMMANDS.items():
        parser = commands.add_parser(name, help=help, description=description)
        parser.set_defaults(command=_print, describe=describe)
        if name == "enable":
            parser.add_argument(
                "--tf1",
                action="store_true",
                help="with the API of TensorFlow 1 as `tensorflow`, for programs that "
                f"were written for it; {mode.VARIABLE}=0 switches that off for one run",
            )


def _print(options: argparse.Namespace) -> int:
    try:
        text, status = options.describe(options)
    except KeyboardInterrupt:
        print(f"{_NAME}: stopped by SIGINT", file=sys.stderr)
        return 128 + signal.SIGINT
    write_out(f"{printable(text)}\n")
    return status
