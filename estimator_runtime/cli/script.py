"""Running an unmodified script or module as `__main__`, as Python itself does.

The program takes over the process: `sys.argv`, `sys.path[0]` and
`sys.modules["__main__"]` are set to what they are under plain Python. They are not
restored, because exit handlers, threads and pickles still need them after the program's
last line. (`runpy.run_path` and `runpy.run_module` do restore them: they put the old
`__main__` back and clear the program's.)

One difference is known: a few frames of this package lie below the program's on the
stack. They do not appear in its tracebacks: an exception is caught at the program's
outermost frame, reported here, and turned into an exit status.
"""

import builtins
import contextlib
import importlib.util
import os
import runpy
import signal
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder, SourceFileLoader, SourcelessFileLoader
from typing import Any, NoReturn

from estimator_runtime import code_origin, reporting
from estimator_runtime.checkpoint.save import writer
from estimator_runtime.cli import explanation
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.errors import EstimatorRuntimeError, UsageError
from estimator_runtime.output import log_filter
from estimator_runtime.output.terminal import write_error
from estimator_runtime.signals import exit, request, session_close
from estimator_runtime.signals.exit import flush

# How long the end of a program waits for a session that TensorFlow still closes.
_CLOSE_SECS = 0.5
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
_PYTHONS_HOOK = sys.__excepthook__
_NAN_LOSS = "NanLossDuringTrainingError"


def check_script(path: str) -> None:
    """Check that a script can be run, without parsing it.

    Raises:
        UsageError: If `path` does not exist, or is a folder or a notebook.
    """
    if os.path.isdir(path):
        raise UsageError(
            f"script {path!r} is a folder; name a script in it, or run a package by "
            "its name, after -m"
        )
    if not os.path.exists(path):
        raise UsageError(
            f"script {path!r} does not exist; relative paths start from "
            f"{os.getcwd()!r}, and a module needs -m before its name"
        )
    # A notebook is JSON, which Python may run as an expression that does nothing.
    if path.endswith(".ipynb"):
        raise UsageError(
            f"script {path!r} is a notebook; make a script of it, and run that: "
            f"jupyter nbconvert --to script {path}"
        )


def check_rereadable(path: str) -> None:
    """Check that any process can read a script, as each task of a cluster does.

    Call `check_script` first.

    Raises:
        UsageError: If `path` is a pipe, or what this process alone has open.
    """
    # In /dev/shm, for example, there are files that any process can read.
    open_here = ("/dev/fd/", "/dev/stdin", "/proc/")
    if os.path.abspath(path).startswith(open_here) or not os.path.isfile(path):
        raise UsageError(
            f"script {path!r} is standard input or a pipe, which only one process can "
            "read, once; write it to a file, and name that"
        )


def check_module(name: str) -> None:
    """Check that the top-level package of a module exists, without importing it.

    `run_module` looks up the submodules. Python imports the parent packages to find
    them, which must not happen before the runtime is installed.

    Raises:
        UsageError: If there is no such module on `sys.path` or in the current folder.
    """
    # `python -m train.py` imports all of train, and then finds no module py in it.
    if os.path.isfile(name) or not is_importable(name):
        raise UsageError(f"no module named {name!r}; {_module_remedy()}")


def load_script(
    path: str,
) -> tuple[SourceFileLoader | SourcelessFileLoader, str, types.CodeType]:
    """Read and compile the file `path`, without running it.

    Returns:
        (its loader, the name that Python gives the file, its code).

    Raises:
        UsageError: If the file cannot be read.
        EstimatorRuntimeError: If it cannot be parsed.
    """
    # What Python calls the file in __file__ and tracebacks. It is absolute since 3.9,
    # but not normalized, so os.path.abspath would be wrong.
    file = path if os.path.isabs(path) else f"{os.getcwd()}{os.sep}{path}"
    is_bytecode = path.endswith(".pyc")
    loader_class = SourcelessFileLoader if is_bytecode else SourceFileLoader
    loader = loader_class("__main__", file)
    try:
        if is_bytecode:
            code: Any = loader.get_code("__main__")  # never None
        else:
            # Not loader.get_code, which would leave a __pycache__ beside the script.
            code = compile(loader.get_data(file), file, "exec", dont_inherit=True)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"script {path!r} cannot be read: {reason}") from error
    except (*_PARSE_ERRORS, ImportError, EOFError) as error:
        raise _unparsable(path, error) from error
    return loader, file, code


def run_script(path: str, arguments: Sequence[str]) -> int:
    """Run the file `path` as `python path arguments...` does.

    Returns:
        The exit status: 0, or 1 after an exception, which is already reported.

    Raises:
        UsageError: If the file cannot be read.
        EstimatorRuntimeError: If it cannot be parsed.
        SystemExit: If the program raises it.
        KeyboardInterrupt: If the program raises it; already reported.
    """
    loader, file, code = load_script(path)
    main = _become_main(loader)
    main.__file__ = file
    vars(main)["__cached__"] = None
    sys.argv = [path, *arguments]
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    # Python flushes when a script ends, before it reports an exception or the message
    # of a SystemExit. It does not when a module ends.
    return execute(code, main, at_end=flush)


def run_module(name: str, arguments: Sequence[str]) -> int:
    """Run the module or package `name` as `python -m name arguments...` does.

    Call `check_module` first.

    Returns:
        The exit status, as `run_script` does.

    Raises:
        UsageError: If a parent package exists, but the module does not, or if the
            module cannot be run.
        EstimatorRuntimeError: If the module cannot be parsed.
        SystemExit: If the program raises it.
        KeyboardInterrupt: If the program raises it; already reported.
    """
    # Private, but pdb uses it too: the public runpy.run_module cannot find a module
    # without running it (see the docstring of this module).
    find = runpy._get_module_details  # type: ignore[attr-defined]
    main = _become_main(loader=None)
    sys.argv = ["-m", *arguments]
    _set_first_path(os.getcwd())
    try:
        _, spec, code = find(name, _CannotRun)
    except _CannotRun as error:
        raise UsageError(f"{error}; {_module_remedy()}") from error
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - all that Python reports
        failure = _without_our_frames(error)
    else:
        sys.argv[0] = spec.origin
        vars(main).update(
            __file__=spec.origin,
            __cached__=spec.cached,
            __loader__=spec.loader,
            __package__=spec.parent,
            __spec__=spec,
        )
        return execute(code, main)
    if isinstance(failure, _PARSE_ERRORS) and failure.__traceback__ is None:
        raise _unparsable(getattr(failure, "filename", None) or name, failure)
    return report(failure)


class _CannotRun(Exception):
    """A module cannot be run. `runpy` raises the class that it is given for this."""


def is_importable(name: str, folder: str | None = None) -> bool:
    """Return whether a module can be found, without importing anything.

    Of a dotted name, only the first part is looked up, and the second if the first is a
    namespace package, such as `google`.

    Args:
        name: The absolute name of the module.
        folder: The folder that is searched first; None for the current one.
    """
    path = list(sys.path)
    _set_first_path(os.getcwd() if folder is None else folder)
    try:
        first, *rest = name.split(".")
        spec = importlib.util.find_spec(first)
        if spec is None:
            return False
        if spec.origin is not None or not rest:
            return True
        folders = spec.submodule_search_locations
        return PathFinder.find_spec(f"{first}.{rest[0]}", folders) is not None
    except (ImportError, ValueError, OSError):
        return False
    finally:
        # A launcher continues, and must not import from the current folder.
        sys.path[:] = path


def _module_remedy() -> str:
    return f"is its package installed, or in a folder below {os.getcwd()!r}?"


def _unparsable(path: str, error: BaseException) -> EstimatorRuntimeError:
    """Return the error that describes in one line why a program cannot be parsed."""
    where, what = path, str(error)
    if isinstance(error, SyntaxError):
        where = f"{path}:{error.lineno}" if error.lineno else path
        line = (error.text or "").strip().partition("\n")[0]
        what = f"{error.msg}: {line}" if line else error.msg
    return EstimatorRuntimeError(f"{where}: {what or type(error).__name__}")


def _become_main(
    loader: SourceFileLoader | SourcelessFileLoader | None,
) -> types.ModuleType:
    """Return a new `__main__` module, which replaces that of this process."""
    main = types.ModuleType("__main__")
    main.__loader__ = loader
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    # exec() would put the dict of builtins there; in __main__ it is the module.
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    # multiprocessing's second name for it: spawned children pickle objects under this
    # name. multiprocessing took the old module when it was imported.
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main
    return main


def _set_first_path(folder: str) -> None:
    # Where Python has added no folder for this package (-P, -I), it would add none for
    # the program.
    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        sys.path[0] = folder


def _without_our_frames(error: BaseException) -> BaseException:
    """Return an error without its leading frames of this package and of imports."""
    ours = {__file__, runpy.run_module.__code__.co_filename}
    frames = error.__traceback__
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen importlib"):
            break
        frames = frames.tb_next
    return error.with_traceback(frames)


def execute(
    code: types.CodeType,
    module: types.ModuleType,
    at_end: Callable[[], None] = lambda: None,
) -> int:
    """Run a compiled program in the namespace of its module, and return its status.

    `at_end` is called when the program has ended, in whatever way, and before its
    exception is reported.

    Raises:
        SystemExit: If the program or its `sys.excepthook` raises it.
        KeyboardInterrupt: If the program raises it; already reported.
    """
    try:
        exec(code, vars(module))
        return 0
    except SystemExit as error:
        log_filter.report_hidden()  # before the last lines, which say how to resume
        _report_stop(error)
        raise
    except BaseException as error:  # noqa: BLE001 - all that Python reports
        failure = _without_our_frames(error)
    finally:
        at_end()
        log_filter.report_hidden()
    # Not in the except block: the hook must not run while an exception is handled.
    try:
        return report(failure)
    finally:
        del failure  # it and the frames of its traceback would keep each other alive


def waits_at_exit(end: BaseException | None) -> bool:
    """Return whether Python's exit would wait for a thread that closes or writes.

    That takes up to a minute.

    Args:
        end: The SystemExit or KeyboardInterrupt that the program has raised, or None.
    """
    patience_secs = 0.0 if request.summary(end) else _CLOSE_SECS
    return _is_hurried() or session_close.are_left(patience_secs)


def end(status: int) -> NoReturn:
    """End the process as Python does, but do not wait for those threads.

    Call this when no frame of the program is left, and nobody handles its exception:
    objects that they hold are finalized here.

    Args:
        status: The exit status; -2 ends the process by SIGINT.
    """
    if not _is_hurried():
        session_close.forget_left()
        exit.run_exit_handlers()
    exit.finalize()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    os._exit(status & 0xFF)


def _is_hurried() -> bool:
    return request.is_hurried() and writer.is_any_under_way()


def report(failure: BaseException) -> int:
    """Report an uncaught exception as Python does, without ending the process.

    `sys.excepthook`, which may be the program's own, is called with the exception, and
    `sys.last_type`, `sys.last_value` and `sys.last_traceback` are set. An error of this
    package about a value that the program gave is printed as one line instead.

    Args:
        failure: The exception; its traceback starts at the program's first frame.

    Returns:
        The exit status, 1.

    Raises:
        SystemExit: If the hook raised it; its status replaces 1.
        KeyboardInterrupt: `failure` itself, if it is one, so that Python ends the
            process by SIGINT after the exit handlers.
    """
    reporting.send_error(type(failure))
    sys.last_type, sys.last_value = type(failure), failure
    sys.last_traceback = failure.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = failure
    is_default = sys.excepthook is _PYTHONS_HOOK
    if is_default and (place := _place_of_setting(failure)):
        write_error(f"estimator-runtime: error: {place}: {failure}\n")
        reporting.send_explanation(f"{place}: {failure}")
        return 1
    if not (is_default and _report_stop(failure)):
        _report_failure(failure, is_default)
    # As in Python, a subclass of it is an exception like any other.
    if type(failure) is KeyboardInterrupt:
        sys.excepthook = lambda *_: None
        raise failure
    return 1


def _report_failure(failure: BaseException, is_default: bool) -> None:
    """Call `sys.excepthook`, which may be the default one, then say what may help."""
    if is_default and type(failure).__name__ == _NAN_LOSS:
        # What to do stands in a note. The frames of libraries would hide it.
        failure.__traceback__ = explanation.program_part(failure.__traceback__)
    text = None
    # It looks into the program's objects, and must not hide the failure by its own.
    with contextlib.suppress(Exception):
        text = explanation.summary_of(failure)
    if is_default:
        explanation.drop_first_raise(failure)
    hook_failure = _call_hook(failure)
    if is_default and text:
        write_error(f"estimator-runtime: error: {text}\n")
    reporting.send_explanation(text or explanation.shortened(failure))
    if _may_be_of_version_1(failure):
        remedy = (
            "put --tf1 before the script"
            if "--tf1" in sys.argv[1:]
            else "a program that was written for it runs with 'estimator-runtime run "
            "--tf1', and 'estimator-runtime doctor' says what it needs"
        )
        write_error(f"estimator-runtime: that name may be of TensorFlow 1; {remedy}\n")
    if hook_failure is not None:
        write_error("Error in sys.excepthook:\n")
        _print(hook_failure)
        write_error("\nOriginal exception was:\n")
        _print(failure)


def _place_of_setting(failure: BaseException) -> str | None:
    """Return where the program gave a value that this package refuses, or None.

    The user needs the line that gave it and the remedy, but not the frames in which
    this package found it. Python's library counts as ours, because many of our calls go
    through it, such as contextlib's.
    """
    if not isinstance(failure, EstimatorRuntimeError):
        return None
    frames = list(traceback.walk_tb(failure.__traceback__))
    wanted = code_origin.MAY_BE_PROGRAM
    of_program = [each for each in frames if code_origin.of_frame(each[0]) in wanted]
    if frames[-1] in of_program:  # raised by the program itself
        return None
    frame, line = (of_program or frames[:1])[-1]
    return f"{frame.f_code.co_filename}:{line}"


def _may_be_of_version_1(failure: BaseException) -> bool:
    """Return whether a program failed at a name that TensorFlow 2 does not have."""
    if isinstance(failure, AttributeError):
        module = str(getattr(failure.obj, "__name__", ""))
    else:
        module = str(getattr(failure, "name", ""))  # of an ImportError
    # A program that names compat.v1 itself does not need the mode.
    is_told = mode.is_on() or ".compat." in module or "tensorflow" not in sys.modules
    return module.partition(".")[0] == "tensorflow" and not is_told


def _report_stop(failure: BaseException) -> bool:
    """Return whether `failure` ends a requested stop; if so, print how it ended.

    Under a launcher nothing is printed: the launcher reports it for all its tasks.
    """
    lines = request.summary(failure)
    if lines and not reporting.is_on():
        exit.flush()
        write_error("".join(f"estimator-runtime: {line}\n" for line in lines))
    return bool(lines)


def _call_hook(failure: BaseException) -> BaseException | None:
    """Call `sys.excepthook`; return the exception that it raises, or None."""
    hook = getattr(sys, "excepthook", sys.__excepthook__)
    try:
        hook(type(failure), failure, failure.__traceback__)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - all that Python reports
        return _without_our_frames(error)
    return None


def _print(error: BaseException) -> None:
    sys.__excepthook__(type(error), error, error.__traceback__)
