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
from collections.abc import Callable
from typing import NoReturn

from estimator_runtime import reporting

# How long to wait for a slow reader.
_READER_SECS = 2.0
_MARK = "__estimator_runtime__"


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
    mark = object()
    for name, module in list(sys.modules.items()):
        names = vars(module) if isinstance(module, types.ModuleType) else {}
        file = names.get("__file__") or "<built in>"
        if names.get("__name__") == "__main__" or _is_of_program(name, file):
            names[_MARK] = mark
            del sys.modules[name]
    del module, names
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    gc.collect()
    for each in gc.get_objects():
        # Another module or thread refers to the module. Finalizers may need what stays.
        if type(each) is dict and each.get(_MARK) is mark:
            for name, value in list(each.items()):
                is_data = not (callable(value) or isinstance(value, types.ModuleType))
                if is_data and not name.startswith("__"):
                    each[name] = value = None
    gc.collect()
    _flush_files()
    flush()


def _is_of_program(name: str, file: str) -> bool:
    is_framework = name.partition(".")[0] in reporting.FRAMEWORKS
    return reporting.is_file_of_program(file) and not is_framework


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
