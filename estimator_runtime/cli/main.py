"""The command `estimator-runtime`; needs no TensorFlow to explain itself.

Each command is a parser and a function that takes the parsed options and returns the
exit status. What the user did wrong arrives in `main` as an EstimatorRuntimeError and
becomes one line; a program's own exceptions never come this far.
"""

import argparse
import functools
import os
import sys
import time

from estimator_runtime import (
    __version__,
    dashboard,
    dashboard_option,
    enabling,
    folding,
    install,
    launch_options,
    launching,
    listing,
    rendering,
    reporting,
    script,
    training_flags,
)
from estimator_runtime.compat import native_log
from estimator_runtime.doctor import examination
from estimator_runtime.errors import EstimatorRuntimeError, UsageError
from estimator_runtime.parser import (
    Parser,
    check_first,
    misplaced_option,
    show,
    unknown_argument,
)
from estimator_runtime.process_name import name_after_task
from estimator_runtime.tf_config import check_form

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
  129, 130, 143  a training was stopped by SIGHUP, Ctrl-C or SIGTERM, with a checkpoint
A script that runs decides itself: its sys.exit() status, 1 after an exception that
it does not catch, 130 (in a shell) after Ctrl-C.
"""


def main(argv=None) -> int:
    """Run one command.

    Args:
        argv: The arguments without the program's name; those of this process when
            None.

    Returns:
        The exit status, as `estimator-runtime --help` lists them.

    Raises:
        SystemExit: After --help and --version, and as the script under `run` does.
        KeyboardInterrupt: As the script under `run` does, already reported.
    """
    try:
        options = _parse(argv)
        return options.command(options)
    except EstimatorRuntimeError as error:
        reporting.send_error(type(error))
        print(f"{_NAME}: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _parse(argv):
    parser = Parser(
        prog=_NAME,
        description="Train tf.estimator code, unchanged, on today's TensorFlow.",
        epilog=_EXIT_STATUSES,
    )
    parser.add_argument("--version", action="version", version=f"{_NAME} {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    run_parser = _add_run(commands)
    _add_checkpoints(commands)
    _add_doctor(commands)
    _add_render(commands)
    _add_activation(commands)
    arguments = sys.argv[1:] if argv is None else argv
    first = next(iter(arguments), "")
    if first.endswith(".py"):
        raise UsageError(f"{first!r} is no command; to run it: {_NAME} run {first}")
    check_first(arguments, parser, commands.choices)
    if arguments[:1] == ["run"]:
        arguments = ["run", *dashboard_option.with_port(run_parser, arguments[1:])]
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parsers = {**commands.choices, "": parser}  # whose options stand before any
        problem = unknown_argument(unknown[0], arguments, options, parsers)
        raise UsageError(problem)
    if not hasattr(options, "command"):
        parser.error("no COMMAND given")
    return options


def _add_run(commands):
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
    training_flags.add_options(parser)
    dashboard_option.add_option(parser)
    launch_options.add_options(parser)
    _add_program(parser)
    parser.set_defaults(command=functools.partial(_run, parser))
    return parser


def _run(parser, options):
    _drop_separator(options)
    program, *arguments = options.program
    if options.is_module:
        check, run = script.check_module, script.run_module
    else:
        check, run = script.check_script, script.run_script
    check(program)
    training_flags.carry(options, os.environ)
    is_cluster = launch_options.is_wanted(options)
    if options.tensorboard is not None:
        dashboard.check(options.tensorboard)
    if is_cluster:
        return launching.launch(options)
    dashboard.want(options.tensorboard)
    reporting.start(os.environ)
    # What no reader of it could use. Whether there has to be a chief, or a task, only
    # the script knows: under a multi-worker strategy worker 0 leads, for one.
    check_form(os.environ)
    name_after_task(os.environ)
    folding.start(os.environ)
    install()
    if not folding.is_verbose(os.environ) and not reporting.is_on():
        native_log.quieten()  # a launcher does that line by line
    try:
        return run(program, arguments)
    except SystemExit as error:
        if problem := misplaced_option(error, arguments, parser):
            print(f"{_NAME}: {problem}", file=sys.stderr)
        raise


def _add_checkpoints(commands):
    parser = commands.add_parser(
        "checkpoints",
        help="list a training's checkpoints, and which one a restart would use",
        description="List the checkpoints of a training. Nothing is changed.\nThe exit "
        "status is 1 if a restart would not go on from the newest one, or has none.",
    )
    listing.add_options(parser)
    parser.set_defaults(
        command=_print, describe=lambda options: listing.describe(options, time.time())
    )


def _add_doctor(commands):
    parser = commands.add_parser(
        "doctor",
        help="find what keeps a training from starting here, and the remedy",
        usage=f"{_NAME} doctor [options] [SCRIPT]",
        description="Look at the packages, devices, TF_CONFIG, ports, model directory "
        "and, where one\nis given, the script, which is not run. Nothing is changed. "
        "The exit status is 1\nif there is a problem; its line says what would do.",
    )
    examination.add_options(parser)
    parser.set_defaults(command=_print, describe=examination.describe)


def _add_render(commands):
    parser = commands.add_parser(
        "render",
        help="print Kubernetes manifests of a job",
        usage=f"{_NAME} render --backend kubernetes --image IMAGE [options] SCRIPT "
        "[ARGS...]",
        description="Print a job as manifests for `kubectl apply -f`. Nothing is "
        "started, and neither the\nscript nor the image is looked at. What follows "
        "SCRIPT is the script's.",
    )
    rendering.add_options(parser)
    _add_program(parser)
    parser.set_defaults(command=_render)


def _render(options):
    _drop_separator(options)
    show(rendering.render(options))
    return 0


def _add_program(parser):
    parser.add_argument(
        "-m",
        action="store_true",
        dest="is_module",
        help="what follows is the name of a module or package, found as python -m does",
    )
    # PARSER, not REMAINDER: it leaves every argument after the first alone, "--" and
    # what looks like an option of ours included, and does not swallow those before.
    parser.add_argument(
        "program",
        metavar="SCRIPT",
        nargs=argparse.PARSER,
        help="path of the script, and its arguments",
    )


def _drop_separator(options):
    # Python 3.10 to 3.12 leave the "--" of `run -- SCRIPT` in place, newer ones do not.
    if options.program[0] == "--" and len(options.program) > 1:
        del options.program[0]


def _add_activation(commands):
    for name, (describe, help, description) in enabling.COMMANDS.items():
        parser = commands.add_parser(name, help=help, description=description)
        parser.set_defaults(command=_print, describe=describe)


def _print(options):
    text, status = options.describe(options)
    show(f"{text}\n")
    return status
