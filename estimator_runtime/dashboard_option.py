"""`--tensorboard [PORT]` of `estimator-runtime run`."""

import argparse

from estimator_runtime.dashboard import FIRST_FREE

_FLAG = "--tensorboard"
_LAST_PORT = 65535


def add_option(parser):
    """Add the option to the parser of `run`."""
    parser.add_argument(
        _FLAG,
        metavar="[PORT]",
        type=_port,
        help="start TensorBoard with the job, on 127.0.0.1, and print its address: at "
        "this PORT, with 0 at any that is free, without PORT at the first from 6006",
    )


def with_port(parser, arguments):
    """Give each option its value where `--tensorboard` comes without one.

    argparse would take the script for the port.

    Args:
        parser: The parser of `run`, with all its options.
        arguments: What follows `run` on the command line.

    Returns:
        The arguments that the parser is to be given.
    """
    takes_value = {
        name
        for action in parser._actions
        if action.nargs != 0
        for name in action.option_strings
    }
    rest, done = list(arguments), []
    # What comes after the script is the script's.
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option = rest.pop(0)
        if option == _FLAG and not (rest and rest[0].isdigit()):
            option = f"{_FLAG}={FIRST_FREE}"
        elif option in takes_value and rest:
            done.append(option)
            option = rest.pop(0)
        done.append(option)
    return [*done, *rest]


def _port(text):
    if text == FIRST_FREE:
        return FIRST_FREE
    if not (text.isascii() and text.isdigit() and int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(
            f"it is {text!r}; give a port, 0 to {_LAST_PORT}, or none"
        )
    return int(text)
