"""The parser of the command line: each mistake is one line, with what would do."""

import argparse
import difflib
import itertools

from estimator_runtime.errors import UsageError


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which never guesses an option."""

    def __init__(self, **options):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=formatter, **options)

    def error(self, message):
        """Raise what is wrong.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"{message}; see '{self.prog} --help'")

    def similar_option(self, argument):
        """Give the option that may be meant by one it does not know, or None."""
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


def unknown_argument(argument, arguments, options, commands):
    """Say what is wrong with an argument that no parser knows.

    Args:
        argument: The argument.
        arguments: All arguments of the command line.
        options: What was parsed of them.
        commands: The subparsers, by the name of the command.
    """
    is_option = argument.startswith("-")
    command = next((each for each in arguments if not each.startswith("-")), "")
    parser = commands.get(command)
    ours = f"'{parser.prog} --help'" if parser else "'estimator-runtime --help'"
    script_given = getattr(options, "script", None)  # to doctor, which does not run it
    similar = parser.similar_option(argument) if is_option and parser else None
    if is_option and hasattr(options, "program"):
        remedy = f"options of the script belong after it, ours are listed by {ours}"
    elif script_given in itertools.takewhile(argument.__ne__, arguments):
        remedy = f"{command} takes none of the script's, leave them out; see {ours}"
    else:
        remedy = f"see {ours}"
    kind = "unknown option" if is_option else "unexpected argument"
    question = f" (did you mean {similar!r}?)" if similar else ""
    return f"{kind} {argument!r}{question}; {remedy}"
