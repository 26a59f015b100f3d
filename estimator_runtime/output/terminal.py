"""What a terminal can show, and how a line reaches standard error."""

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal.

    Args:
        stream: Any stream. The result is False if it cannot be determined: if the
            stream is closed, if it is an object of the program that has only `write`,
            or if it is None, like `sys.stderr` of a process started without it.
    """
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def can_redraw(stream: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a stream is a terminal that can erase what it shows."""
    return is_terminal(stream) and environ.get("TERM") != "dumb"


def write_error(text: str) -> None:
    """Write on standard error, if there is one and somebody reads it."""
    # Python too writes nothing if the process was started without standard error, or
    # if its reader, such as a terminal, has gone. The program may have closed it.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()


def printable(text: str) -> str:
    """Return a text with its control characters escaped, but for tabs and line breaks.

    A terminal obeys them, and names of files may have them.
    """
    return "".join(
        char if char.isprintable() or char in "\t\n" else ascii(char)[1:-1]
        for char in text
    )


def time_left(step: int, last_step: int | None, rate: float | None) -> str | None:
    """Return the time left as "H:MM:SS"; None if it is unknown.

    Args:
        step: The present global step.
        last_step: The global step at which the training ends, or None.
        rate: Steps per second, or None.
    """
    if last_step is None or not rate or rate <= 0:
        return None
    minutes, secs = divmod(round(max(0, last_step - step) / rate), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{secs:02}"
