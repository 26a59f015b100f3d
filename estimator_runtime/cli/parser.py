"""The parser of the command line: each mistake becomes one line with its remedy."""

import argparse
import difflib
import itertools
import math
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from estimator_runtime.errors import EstimatorRuntimeError, UsageError


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

    def similar_option(self, argument: str) -> str | None:
        """Return the known option that is closest to an unknown one, or None."""
        name, equals, _ = argument.partition("=")
        known = [
            option
            for action in self._actions
            for option in action.option_strings
            if action.nargs != 0 or not equals
        ]
        return next(
            iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), None
        )

    def has_option(self, argument: str) -> bool:
        """Return whether an argument is a known option, with a value or without."""
        return argument.partition("=")[0] in self._option_string_actions


def number(wanted: str, is_valid: Callable[[float], bool]) -> Callable[[str], float]:
    """Return a type for argparse: a finite number for which `is_valid` is true.

    `wanted` is what the error asks for, such as "a number, 0 or more".
    """

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and is_valid(value)):
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
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:
            escaped = text.encode(encoding, "backslashreplace")
            sys.stdout.write(escaped.decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at exit, and would report the same error there.
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            problem = f"standard output cannot be written ({error.strerror})"
            problem += "; send it to where there is room"
            raise EstimatorRuntimeError(problem) from error


def check_first(
    arguments: Sequence[str], parser: Parser, commands: Mapping[str, Parser]
) -> None:
    """Check that the first argument is a command, or an option that may come first.

    `parser` has the options that may stand before a command.

    Raises:
        UsageError: If the argument is an option of a command, which it must follow, or
            resembles a command.
    """
    first = next(iter(arguments), "")
    command = next((each for each in arguments if each in commands), None)
    if first.startswith("-") and not parser.has_option(first):
        if command is not None and commands[command].has_option(first):
            raise UsageError(
                f"option {first!r} stands before {command!r}; put it after that"
            )
        owners = (name for name in commands if commands[name].has_option(first))
        if command is None and (owner := next(owners, None)):
            raise UsageError(
                f"no command stands before {first!r}, an option of {owner!r}; "
                f"write: {shlex.join([parser.prog, owner, *arguments])}"
            )
    elif not first.startswith("-") and first not in commands:
        for similar in difflib.get_close_matches(first, commands, n=1):
            raise UsageError(f"{first!r} is not a command; did you mean {similar!r}?")


def unknown_argument(
    argument: str,
    arguments: Sequence[str],
    options: argparse.Namespace,
    parsers: Mapping[str, Parser],
) -> str:
    """Explain in one line what is wrong with an argument that no parser accepts.

    Args:
        argument: The argument.
        arguments: All arguments of the command line.
        options: The options that were parsed from them.
        parsers: Parsers by command; "" has the options before a command.
    """
    is_option = argument.startswith("-")
    kind = "unknown option" if is_option else "unexpected argument"
    command = next((each for each in arguments if not each.startswith("-")), "")
    is_before = command in itertools.takewhile(argument.__ne__, reversed(arguments))
    parser = parsers.get(command, parsers[""])
    problem = f"{kind} {argument!r}"
    similar = None
    if is_option:
        similar = (parsers[""] if is_before else parser).similar_option(argument)
    # The script of doctor, which does not run it.
    script_given: Any = getattr(options, "script", None)
    ours = f"'{parser.prog} --help'"
    remedy = f"see {ours}"
    if similar is not None:
        problem += f" (did you mean {similar!r}?)"
    if is_option and hasattr(options, "program"):
        remedy = f"put options of the script after it, as in 'SCRIPT {argument}'; "
        remedy += f"{ours} lists ours"
    elif not similar and script_given in itertools.takewhile(
        argument.__ne__, arguments
    ):
        remedy = f"{command} takes none of the script's, leave them out; {remedy}"
    return f"{problem}; {remedy}"


def misplaced_option(
    error: SystemExit, arguments: Sequence[str], parser: Parser
) -> str | None:
    """Explain that an option which a script rejected may be meant for this package.

    Returns:
        One line, with the remedy. None if `error` ended the script for another reason,
        or if `parser`, that of the command, has none of the script's `arguments`.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    options = (each for each in arguments if each.startswith("-"))
    ours = next(filter(parser.has_option, options), None)
    if ours is None or not _is_refusal(frames):
        return None
    return (
        f"the script was given {ours!r}, which stands after it; if it is for "
        f"'{parser.prog}', put it before the script"
    )


def _is_refusal(frames: Sequence[FrameType]) -> bool:
    """Return whether a script ended in these frames because of an unknown option."""
    places = [(each.f_globals.get("__name__"), each.f_code.co_name) for each in frames]
    if places[-1] == ("argparse", "exit"):
        return "unrecognized arguments" in str(frames[-1].f_locals.get("message"))
    # Newer versions of absl end the process one function further down.
    return ("absl.app", "parse_flags_with_usage") in places[-2:]
