"""The end of a process without Python's own exit, and its last output.

In the middle of a training nothing may block: the reader of standard output or error
may be gone, or may have stopped reading while the pipe is full. The program may have
closed a stream, or replaced it with an object of its own.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import NoReturn

from estimator_runtime import code_origin, threads

# How long to wait for a slow reader.
_READER_SECS = 2.0
# What is not data.
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


def flush() -> None:
    """Flush standard error and standard output, ignoring errors."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(Exception):
            stream.flush()


def run_exit_handlers() -> None:
    """Wait for the program's threads, and run its exit handlers, as Python does."""
    # Private, but nothing else ends the idle threads of `concurrent.futures`.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def finalize() -> None:
    """Finalize what the program's modules hold, so that its open files are whole.

    Names are deleted in the reverse of the order in which they were defined: an object
    ends before what it may need. What installed packages hold, such as TensorFlow's
    sessions, is not finalized. That may take its time: a file may be on a slow disk.
    """
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    main = sys.modules.get("__main__")
    others = [each for each in sys.modules.values() if _is_of_program(each)]
    for module in (main, *reversed(others)):
        names = vars(module) if isinstance(module, types.ModuleType) else {}
        for name in reversed(list(names)):
            # Daemon threads of the program may still call its functions.
            if not name.startswith("__") and not isinstance(names[name], _CODE):
                names.pop(name, None)
    gc.collect()
    flush()
    ctypes.CDLL(None).fflush(None)


def _is_of_program(module: object) -> bool:
    names = vars(module) if isinstance(module, types.ModuleType) else {}
    name = str(names.get("__name__"))
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    parent = spec.parent.partition(".")[0] if spec is not None and spec.parent else None
    if name.partition(".")[0] == parent:
        return True  # an installed package that `-m` runs
    file = str(names.get("__file__") or "<built in>")
    return code_origin.of_file(file, name) in code_origin.OF_PROGRAM


def call_and_flush(function: Callable[[], object]) -> None:
    """Call a function that writes or logs, then flush; take at most two seconds.

    The function runs in its own thread, which is abandoned if it blocks.

    Args:
        function: Its errors are ignored.
    """
    try:
        thread = threads.start("exit", _call_and_flush, function)
    except RuntimeError:  # no more threads can be started
        return
    thread.join(_READER_SECS)


def end(status: int) -> NoReturn:
    """Flush standard output and error as far as their readers accept it, and end."""
    call_and_flush(lambda: None)
    os._exit(status)


def _call_and_flush(function: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        function()
    flush()
