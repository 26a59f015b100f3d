"""What a process still writes before it ends without python: no reader can keep it.

The reader of standard output or error may be gone, or pause for ever with a full pipe;
the program may have closed a stream, or put an object of its own there.
"""

import contextlib
import gc
import io
import os
import sys
import threading

# How long somebody who reads slowly is waited for.
_READER_SECS = 2.0


def flush():
    """Flush standard error and output; what cannot be flushed is left to the exit."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(Exception):
            stream.flush()


def flush_files():
    """Flush all files that are open for writing, as python does at its own end."""
    say(_flush_files)


def say(words):
    """Call `words`, which writes or logs, and flush; go on after two seconds anyway."""
    thread = threading.Thread(
        target=_say, args=(words,), name="estimator_runtime words", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:  # there can be no more threads
        return
    thread.join(_READER_SECS)


def end(status):
    """End the process at once, with what was written as far as somebody reads it."""
    say(lambda: None)
    os._exit(status)


def _flush_files():
    for each in gc.get_objects():
        if issubclass(type(each), io.IOBase):  # what isinstance asks may be a proxy's
            with contextlib.suppress(Exception):
                if not each.closed:
                    each.flush()


def _say(words):
    with contextlib.suppress(Exception):
        words()
    flush()
