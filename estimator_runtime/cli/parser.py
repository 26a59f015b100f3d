"""The parser of the command line: each mistake becomes one line with its remedy."""

import argparse
import contextlib
import difflib
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from estimator_runtime.errors import EstimatorRuntimeError, UsageError

NAME = "estimator-runtime"
# The ratio from which on an unknown option is a mistyped one: above that of --steps, an
# option of many scripts, and --steps-per-run.
_SIMILAR = 0.8
EXIT_STATUSES = """\
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


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors, which accepts no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=formatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError` with the message and a hint at `--help`.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"{message}; see '{self.prog} --help'")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version. argparse calls this."""
        if file is None or file is sys.stdout:
            write_out(message)
        else:
            super()._print_message(message, file)

    def has_option(self, argument: str) -> bool:
        """Return whether an argument is a known option, with a value or without."""
        return argument.partition("=")[0] in self._option_string_actions


def number(
    wanted: str,
    is_valid: Callable[[float], bool],
    kind: type[float] | type[int] = float,
) -> Callable[[str], float]:
    """Return a type for argparse: a finite number for which `is_valid` is true.

    Args:
        wanted: What the error asks for, such as "a number, 0 or more".
        is_valid: Whether a number is valid.
        kind: `int` for whole numbers.
    """

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (is_valid(value) and value < math.inf):
            raise argparse.ArgumentTypeError(f"the value is {text!r}; give {wanted}")
        return value

    return parse


def write_out(text: str) -> None:
    """Print text on standard output.

    Characters that the encoding lacks, such as those of a path that is not UTF-8, are
    escaped, as Python does on standard error. A closed pipe is not an error.

    Raises:
        EstimatorRuntimeError: If standard output cannot be written for another reason.
    """
    if sys.stdout is None:  # the process was started without it
        return
    with contextlib.suppress(AttributeError):  # another object in its place
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at exit, and would report the same error there.
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            problem = f"standard output cannot be written ({error.strerror})"
            problem += "; send it to where there is room"
            raise EstimatorRuntimeError(problem) from error


def add_program(parser: Parser) -> None:
    """Add the script or module, and its arguments, to the parser of a command."""
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


def check_first(
    arguments: Sequence[str], parser: Parser, commands: Mapping[str, Parser]
) -> None:
    """Check that the first argument is a command, or an option that may come first.

    Raises:
        UsageError: If it is a script, an option of a command, or a mistyped command.
    """
    first = next(iter(arguments), "")
    if first in commands or parser.has_option(first):
        return
    if first.endswith(".py"):
        raise UsageError(f"{first!r} is not a command; to run it: {NAME} run {first}")
    if first.startswith("-"):
        raise UsageError(
            f"option {first!r} stands before the command; write the command first, as "
            f"in: {NAME} run {first} ..."
        )
    for similar in difflib.get_close_matches(first, commands, n=1):
        raise UsageError(f"{first!r} is not a command; did you mean {similar}?")


def unknown_argument(argument: str, parser: Parser) -> UsageError:
    """Return the error about an argument that the parser of a command does not know."""
    is_option = argument.startswith("-")
    given = argument.partition("=")[0].replace("_", "-")
    known = parser._option_string_actions
    for similar in difflib.get_close_matches(given, known, n=1, cutoff=_SIMILAR):
        return UsageError(f"unknown option {argument!r}; did you mean {similar}?")
    problem = f"{'unknown option' if is_option else 'unexpected argument'} {argument!r}"
    lists = f"'{parser.prog} --help'"
    if is_option and parser.get_default("takes_program"):
        return UsageError(
            f"{problem}; put options of the script after it, as in 'SCRIPT "
            f"{argument}'; {lists} lists ours"
        )
    return UsageError(f"{problem}; see {lists}")


def misplaced_option(
    arguments: Sequence[str], parser: Parser, script: str
) -> str | None:
    """Return a line about the first of a script's arguments that is an option of ours.

    It is None if `parser`, that of the command, has none of them, or the script names
    it, as then it may have that option too.

    Args:
        arguments: The arguments of the script.
        parser: The parser of the command.
        script: The path of the script. If it is no file, it is not known what it names.
    """
    # Any script may have -h, --help or -m of its own.
    long = [each for each in arguments if re.match("--(?!help)", each)]
    ours = next(filter(parser.has_option, long), None)
    # What a pipe has can be read only once.
    if ours is None or not os.path.isfile(script):
        return None
    option = ours.partition("=")[0]
    with open(script, errors="replace") as file:
        if option.lstrip("-").replace("-", "_") in file.read().replace("-", "_"):
            return None
    return (
        f"the script was given {option!r}, which stands after it; if it is for "
        f"'{parser.prog}', put it before the script"
    )
