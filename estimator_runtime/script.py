"""Runs an untouched script or module as `__main__`, the way python itself does.

The process belongs to the program from here on: `sys.argv`, `sys.path[0]` and
`sys.modules["__main__"]` become what they would be under plain python and stay so,
because exit handlers, threads and pickles still need them when the program's last
line has run. (That is what `runpy.run_path` and `run_module` do not do: they put the
old `__main__` back and clear the program's.) Known differences: a few frames of ours
lie below the program's on the stack, and they are not in its tracebacks.
"""

import builtins
import difflib
import importlib.util
import os
import re
import runpy
import sys
import types
import zipfile
from importlib.machinery import SourceFileLoader, SourcelessFileLoader

from estimator_runtime.errors import EstimatorRuntimeError, UsageError
from estimator_runtime.execution import execute, report
from estimator_runtime.last_words import flush

_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


def check_script(path):
    """Refuse a script that cannot be run, without parsing it.

    Raises:
        UsageError: If `path` does not exist, or is a folder or an archive.
    """
    if os.path.isdir(path):
        raise UsageError(f"script {path!r} is a folder; {_script_remedy(path)}")
    if not os.path.exists(path):
        raise UsageError(f"script {path!r} does not exist; {_script_remedy(path)}")
    if zipfile.is_zipfile(path):  # plain python runs the __main__ in it
        raise UsageError(
            f"script {path!r} is an archive; unpack it, and run its __main__.py"
        )


def check_module(name):
    """Refuse a module whose top-level package cannot be found; import nothing.

    Packages below it are looked up by `run_module`: python imports the ones above
    to do that, so they must not be touched before the runtime is installed.

    Raises:
        UsageError: If there is no such module on `sys.path` or in the current folder.
    """
    # python -m train.py imports train, all of it, to find no module py in it.
    if os.path.isfile(name) or not _is_importable(name.partition(".")[0]):
        raise UsageError(f"no module named {name!r}; {_module_remedy(name)}")


def load_script(path):
    """Read and compile the file `path`; run nothing of it.

    Returns:
        (its loader, the name python gives the file, its code).

    Raises:
        UsageError: If the file cannot be read.
        EstimatorRuntimeError: If it cannot be parsed.
    """
    # What python calls the file in __file__ and tracebacks: absolute since 3.9, not
    # normalized, so not os.path.abspath.
    file = path if os.path.isabs(path) else f"{os.getcwd()}{os.sep}{path}"
    is_bytecode = path.endswith(".pyc")
    loader_class = SourcelessFileLoader if is_bytecode else SourceFileLoader
    loader = loader_class("__main__", file)
    try:
        if is_bytecode:
            code = loader.get_code("__main__")
        else:
            # Not loader.get_code: it would leave a __pycache__ beside the script.
            code = compile(loader.get_data(file), file, "exec", dont_inherit=True)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"script {path!r} cannot be read: {reason}") from error
    except (*_PARSE_ERRORS, ImportError, EOFError) as error:
        raise _unparsable(path, error) from error
    return loader, file, code


def run_script(path, arguments):
    """Run the file `path` as `python path arguments...` does.

    Returns:
        The exit status: 0, or 1 after an exception, reported by `sys.excepthook`.

    Raises:
        UsageError, EstimatorRuntimeError: As `load_script`.
        SystemExit, KeyboardInterrupt: As the program raised them, so that python
            ends the process as it would have; the interrupt is already reported.
    """
    loader, file, code = load_script(path)
    main = _become_main(loader)
    main.__file__ = file
    vars(main)["__cached__"] = None
    sys.argv = [path, *arguments]
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    # python flushes when a script ends, before it reports an exception or the
    # message of a SystemExit; for a module it does not.
    return execute(code, main, at_end=flush)


def run_module(name, arguments):
    """Run the module or package `name` as `python -m name arguments...` does.

    Call `check_module` first. Returns and raises as `run_script`; UsageError here
    means that a parent is there but the module is not, or cannot be run.
    """
    # Private, but what pdb uses too: the public runpy.run_module cannot find a module
    # without running it (see the top of this file).
    find = runpy._get_module_details  # type: ignore[attr-defined]
    main = _become_main(loader=None)
    sys.argv = ["-m", *arguments]
    _set_first_path(os.getcwd())
    try:
        _, spec, code = find(name, _CannotRun)
    except _CannotRun as error:
        raise UsageError(f"{error}; {_module_remedy(name)}") from error
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - all that python reports
        failure = error.with_traceback(_program_frames(error.__traceback__))
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
    """What runpy raises, given this class, for a module that cannot be run."""


def _is_importable(name: str) -> bool:
    """Return whether `python -m` would find the top-level module `name`."""
    path = list(sys.path)
    _set_first_path(os.getcwd())
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
    finally:
        # A launcher goes on, and imports nothing from the current folder.
        sys.path[:] = path


def _script_remedy(path):
    could_be_module = all(part.isidentifier() for part in path.split("."))
    if os.path.isdir(path):
        if could_be_module and os.path.isfile(os.path.join(path, "__main__.py")):
            return f"to run it as a package, put -m before it: -m {path}"
        return "name a script in it"
    folder, name = os.path.split(path)
    if re.fullmatch(r"python[0-9.]*", name):
        return "leave it out, and name the script itself"
    if os.path.isdir(folder or "."):
        scripts = [each for each in os.listdir(folder or ".") if each.endswith(".py")]
        for similar in difflib.get_close_matches(name, scripts, n=1, cutoff=0.7):
            return f"did you mean {os.path.join(folder, similar)!r}?"
    if could_be_module and not path.endswith(".py"):
        return f"if it is a module, put -m before it: -m {path}"
    return f"relative paths start from {os.getcwd()!r}"


def _module_remedy(name):
    if os.path.isfile(name):
        return f"it is a file: leave out the -m before {name}"
    if hasattr(sys.modules.get(name), "__path__"):
        return f"name a module in it, such as {name}.train"
    return f"is its package installed, or in a folder below {os.getcwd()!r}?"


def _unparsable(path, error):
    where, what = path, str(error)
    if isinstance(error, SyntaxError):
        where = f"{path}:{error.lineno}" if error.lineno else path
        line = (error.text or "").strip().partition("\n")[0]
        what = f"{error.msg}: {line}" if line else error.msg
    return EstimatorRuntimeError(f"{where}: {what or type(error).__name__}")


def _become_main(loader):
    main = types.ModuleType("__main__")
    main.__loader__ = loader
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    # exec() would put the dict there; in __main__ it is the module.
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    # multiprocessing's other name for it, under which spawned children send back what
    # they make; it took the old module when it was imported.
    if "__mp_main__" in sys.modules:
        sys.modules["__mp_main__"] = main
    return main


def _set_first_path(folder):
    # Where python put no folder for us (-P, -I), it would put none for the program.
    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        sys.path[0] = folder


def _program_frames(traceback):
    ours = {__file__, runpy.run_module.__code__.co_filename}
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen importlib"):
            break
        traceback = traceback.tb_next
    return traceback
