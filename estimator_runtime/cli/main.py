"""The command `estimator-runtime`, whose parsing and help need no TensorFlow.

Each command is a module with a function `add_to`, which adds its parser. A parser sets
`command`, a function that takes the parsed options and returns the exit status, or
`describe`, which returns a text to print as well. A mistake of the user's reaches
`main` as an EstimatorRuntimeError and is printed as one line. A program's own
exceptions never get this far.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from estimator_runtime import __version__, reporting
from estimator_runtime.cli import (
    activation,
    checkpoints,
    ps,
    render,
    run,
    run_flags,
    tf1,
)
from estimator_runtime.cli.doctor import report
from estimator_runtime.cli.parser import (
    EXIT_STATUSES,
    NAME,
    Parser,
    check_first,
    unknown_argument,
    write_out,
)
from estimator_runtime.errors import EstimatorRuntimeError, UsageError
from estimator_runtime.output.terminal import printable

_COMMANDS = (run, checkpoints, ps, report, render, activation, tf1)


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
        options = parse(sys.argv[1:] if argv is None else argv)
        if hasattr(options, "command"):
            return options.command(options)
        return _print(options)
    except EstimatorRuntimeError as error:
        reporting.send_error(type(error))
        reporting.send_explanation(str(error))
        print(f"{NAME}: error: {printable(str(error))}", file=sys.stderr)
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
        prog=NAME,
        description="Train tf.estimator code, unchanged, on today's TensorFlow.",
        epilog=EXIT_STATUSES,
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for each in _COMMANDS:
        each.add_to(commands)
    return parser, commands.choices


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options that the arguments of `estimator-runtime` give.

    Raises:
        UsageError: If they are wrong.
        SystemExit: After --help and --version.
    """
    parser, commands = parsers()
    check_first(arguments, parser, commands)
    is_run = arguments[:1] == ["run"]
    given = run_flags.with_port(arguments) if is_run else arguments
    options, unknown = parser.parse_known_args(given)
    if unknown:
        raise unknown_argument(unknown[0], commands[arguments[0]])
    # Python 3.10 to 3.12 keep the "--" of `run -- SCRIPT`; newer versions remove it.
    if getattr(options, "program", ())[:1] == ["--"] and len(options.program) > 1:
        del options.program[0]
    if is_run:  # what is the script's stays as it is
        options.program = arguments[-len(options.program) :]
    return options


def _print(options: argparse.Namespace) -> int:
    try:
        text, status = options.describe(options)
    except KeyboardInterrupt:
        print(f"{NAME}: stopped by SIGINT", file=sys.stderr)
        return 128 + signal.SIGINT
    write_out(f"{printable(text)}\n")
    return status
