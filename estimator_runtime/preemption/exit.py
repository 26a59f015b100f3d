"""The end of a process that skips Python's own exit, and its last output.

In the middle of a training nothing may block: the reader of standard output or error
may be gone, or may have stopped reading while the pipe is full. The program may have
closed a stream, or replaced it with an object of its own.
"""

import contextlib
import ctypes
import gc
import io
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from estimator_runtime import reporting
from estimator_runtime.output import relay

# How long to wait for a slow reader.
_READER_SECS = 2.0


def flush() -> None:
    """Flush standard error and standard output, ignoring errors."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(Exception):
            stream.flush()


def finalize() -> None:
    """Finalize the program's objects, then flush all files, as Python does at its exit.

    That may take its time: a file may be on a slow disk. What installed packages hold,
    such as TensorFlow's sessions, is not finalized.
    """
    references = []
    for key, module in list(sys.modules.items()):
        if _is_of_program(module):
            references.append(weakref.ref(_ModuleNames(vars(module))))
            del sys.modules[key]
    del module
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    gc.collect()
    for reference in references:
        if (left := reference()) is not None:  # another module or thread refers to it
            left.clear()
    del left
    gc.collect()
    _flush_files()
    flush()
    relay.sync()


class _ModuleNames:
    """The names of a module, alive for as long as they are."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        names["__estimator_runtime__"] = self

    def clear(self) -> None:
        """Remove all objects but modules, functions and classes.

        Finalizers may use those, and so may threads that still run.
        """
        for name, value in list(self._names.items()):
            is_needed = isinstance(value, types.ModuleType) or callable(value)
            if not is_needed and not name.startswith("__"):
                self._names[name] = None


def _is_of_program(module: Any) -> bool:
    names = vars(module) if isinstance(module, types.ModuleType) else {}
    name, file = names.get("__name__"), names.get("__file__")
    return name == "__main__" or (
        isinstance(file, str)
        and reporting.is_file_of_program(file)
        and str(name).partition(".")[0] not in reporting.FRAMEWORKS
    )


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
    """Flush files as far as their readers accept it, and end the process."""
    call_and_flush(_flush_files)
    os._exit(status)


def _flush_files() -> None:
    """Flush all files that are open for writing, as Python and C do at their exit."""
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
