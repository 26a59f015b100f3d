"""Write the last output of a process that skips Python's own exit, without blocking.

The reader of standard output or error may be gone, or may have stopped reading while
the pipe is full. The program may have closed a stream, or replaced it with an object of
its own.
"""

import contextlib
import ctypes
import gc
import io
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from estimator_runtime.output import relay

# How long to wait for a slow reader.
_READER_SECS = 2.0


def flush() -> None:
    """Flush standard error and standard output, ignoring errors."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(Exception):
            stream.flush()


def flush_files() -> None:
    """Flush all files that are open for writing, as Python and C do at their exit."""
    call_and_flush(_flush_files)


def call_and_flush(function: Callable[[], object]) -> None:
    """Call a function that writes or logs, then flush; take at most two seconds.

    The function runs in its own thread, which is abandoned if it blocks.

    Args:
        function: Its errors are ignored.
    """
    thread = threading.Thread(
        target=_call_and_flush,
        args=(function,),
        name="estimator_runtime exit",
        daemon=True,
    )
    try:
        thread.start()
    except RuntimeError:  # no more threads can be started
        return
    thread.join(_READER_SECS)


def end(status: int) -> NoReturn:
    """Flush the output as far as its readers accept it, and end the process."""
    call_and_flush(lambda: None)
    os._exit(status)


def _flush_files() -> None:
    for each in gc.get_objects():
        # isinstance would read __class__, for which a proxy may run code.
        if issubclass(type(each), io.IOBase):
            with contextlib.suppress(Exception):
                if not each.closed:
                    each.flush()
    ctypes.CDLL(None).fflush(None)


def _call_and_flush(function: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        function()
    flush()
    relay.sync()
