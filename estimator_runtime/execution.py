"""Executes a program's code, and ends it as python does, without our frames.

An exception that leaves `main()` would be printed with the frames of everything it
passed on its way out. So it is stopped at the program's outermost frame, reported
here, and becomes an exit status.
"""

import contextlib
import os
import signal
import sys
import traceback

from estimator_runtime import folding, last_words, preemption, reporting, stalls
from estimator_runtime.checkpoint import writer
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.loop import closing

_PYTHONS_HOOK = sys.__excepthook__


def execute(code, module, at_end=lambda: None):
    """Run `code` in the namespace of `module`.

    Args:
        code: The compiled program.
        module: Its module, the `__main__` of this process.
        at_end: Called when the program's last line has run, however it ended, before
            its exception is reported.

    Returns:
        The exit status: 0, or what `report` gives for an exception.

    Raises:
        SystemExit, KeyboardInterrupt: As `report` does; SystemExit also when the
            program raises it.
    """
    stopped = None
    try:
        exec(code, vars(module))
        return 0
    except SystemExit as error:
        folding.tell()  # before the last lines, which say how to go on
        if _tell_stop(error):
            stopped = error.code
        raise
    except BaseException as error:  # noqa: BLE001 - all that python reports
        failure = _without_our_frame(error)
    finally:
        at_end()
        folding.tell()
        if stopped is not None and closing.are_left():
            closing.run_exit_handlers()
            last_words.flush_files()
            os._exit(int(stopped))
    # Not in the except block: the hook must not find an exception being handled.
    return report(failure)


def report(failure):
    """Do what python does with an uncaught exception, short of ending the process.

    `sys.excepthook` gets the exception, the program's own hook included, and
    `sys.last_value` and its siblings are set. An error of this package, which says
    what is wrong with a value that the program gave, is one line instead.

    Args:
        failure: The exception; its traceback starts at the program's first frame.

    Returns:
        The exit status, 1.

    Raises:
        SystemExit: If the hook raised it; its status replaces 1.
        KeyboardInterrupt: `failure` itself, if it is one, already reported: python
            ends the process by SIGINT after the exit handlers have run, and needs
            the exception to do so. At a second Ctrl-C, while a checkpoint is written,
            the process ends here.
    """
    reporting.send_error(type(failure))
    sys.last_type, sys.last_value = type(failure), failure
    sys.last_traceback = failure.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = failure
    if isinstance(failure, EstimatorRuntimeError) and sys.excepthook is _PYTHONS_HOOK:
        places = list(_places(failure))
        if places[-1][1]:  # not one that the program itself raised
            # A setting of the user's that cannot be: where it was given, and what
            # would do. How this package found out is no help.
            own = [place for place, is_ours in places if not is_ours]
            place = (own or [places[0][0]])[-1]
            _write(f"estimator-runtime: error: {place}: {failure}\n")
            return 1
    is_told = sys.excepthook is _PYTHONS_HOOK and _tell_stop(failure)
    hook_failure = None if is_told else _call_hook(failure)
    if hook_failure is not None:
        _write("Error in sys.excepthook:\n")
        _print(hook_failure)
        _write("\nOriginal exception was:\n")
        _print(failure)
    # A subclass of it is an exception like any other, as in python.
    if type(failure) is KeyboardInterrupt:
        is_hurried = preemption.is_hurried() and writer.is_any_under_way()
        are_left = closing.are_left()
        if are_left and not is_hurried:
            closing.run_exit_handlers()
        if is_hurried or are_left:
            # Python would wait for their threads.
            last_words.flush_files()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        sys.excepthook = lambda *_: None
        raise failure
    return 1


def _write(text):
    # Python too leaves it out where the process was started without standard error, or
    # where that has gone, as a terminal may have.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)


def _tell_stop(failure):
    """Say how a stop that was asked for has ended; tell whether it was one.

    A launcher says it for all its tasks.
    """
    lines = preemption.summary(failure)
    if lines and not reporting.is_on():
        last_words.flush()
        _write("".join(f"estimator-runtime: {line}\n" for line in lines))
    return bool(lines)


def _places(failure):
    """Give the lines that `failure` came through: (file:line, not the program's).

    Through Python's library, such as contextlib's, leads many a call of this package.
    """
    for frame, line in traceback.walk_tb(failure.__traceback__):
        yield f"{frame.f_code.co_filename}:{line}", not stalls.is_of_program(frame)


def _call_hook(failure):
    hook = getattr(sys, "excepthook", sys.__excepthook__)
    try:
        hook(type(failure), failure, failure.__traceback__)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - all that python reports
        return _without_our_frame(error)
    return None


def _without_our_frame(error):
    frames = error.__traceback__
    return error.with_traceback(frames and frames.tb_next)


def _print(error):
    sys.__excepthook__(type(error), error, error.__traceback__)
