"""What a stream can show: programs put all kinds in the place of standard error."""

import os


def is_terminal(stream):
    """Tell whether a stream is a terminal.

    It is none where nobody can tell: the stream is None, as `sys.stderr` of a process
    that was started without, or closed, or a program's own that has only `write`.
    """
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def can_redraw(stream, environ=os.environ):
    """Tell whether a stream is a terminal that can take back what it shows."""
    return is_terminal(stream) and environ.get("TERM") != "dumb"


def has_colours(stream, environ=os.environ):
    """Tell whether to write in colours: not where NO_COLOR is set, and not empty."""
    return can_redraw(stream, environ) and not environ.get("NO_COLOR")
