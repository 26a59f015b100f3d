"""The import system of TensorFlow 1 mode: who imports decides what `tensorflow` is.

`sys.modules["tensorflow"]` stays the real package, so libraries, pickles and this
package are as they are without the mode. Only the statements of the program itself
are answered with the API of TensorFlow 1 (see `facade`). For that,
`builtins.__import__` and `importlib.import_module` are wrapped, which adds 0.4 µs to an
import of anything but TensorFlow.

The importing code is the program's unless its file is one of

* a folder named site-packages or dist-packages,
* Python's own library, or this package,
* a folder on `sys.path` in which pip has installed packages (`pip install --target`),
  but for the folder of the program itself.

A package of these places is the program's too if it is named by the variable
ESTIMATOR_RUNTIME_TF1_PACKAGES, as `estimator-runtime run --tf1 -m PACKAGE.MODULE` does
for its own. Code without a file, such as a cell of a notebook, `python -c` or a text
that is passed to `exec`, counts as the code that runs it, and as the program's if that
has no file either.

What is not seen: `importlib.util.find_spec`, `sys.modules["tensorflow"]` and functions
that import by a name on behalf of the program, such as `unittest.mock.patch` and
`pydoc.locate`, give the real TensorFlow. A library that hands its `tf` to the program
hands on TensorFlow 2. A program that has done `from importlib import import_module`
before the mode was turned on keeps the original.
"""

import builtins
import functools
import importlib
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

_ROOT = "tensorflow"
_PREFIX = f"{_ROOT}."
_INSTALLED = ("site-packages", "dist-packages")
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_OURS = str(pathlib.Path(__file__).parents[1]) + os.sep

_packages: frozenset[str] = frozenset()


def answer_program(packages: frozenset[str]) -> None:
    """Answer the imports of the program with the API of TensorFlow 1 from now on.

    Call it once in a process.

    Args:
        packages: Top-level names of installed packages that are the program's own.
    """
    global _packages
    _packages = packages
    original_import, original_module = builtins.__import__, importlib.import_module

    @functools.wraps(original_import)
    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level == 0 and (name == _ROOT or name.startswith(_PREFIX)):
            names = tuple(fromlist or ())
            if is_program(globals, sys._getframe(1)):
                from estimator_runtime.tf1 import facade

                return facade.import_statement(name, names)
            _refuse_contrib(name, names)
        return original_import(name, globals, locals, fromlist or (), level)

    @functools.wraps(original_module)
    def import_module(name: str, package: str | None = None) -> Any:
        if name == _ROOT or name.startswith(_PREFIX):
            frame = sys._getframe(1)
            if is_program(frame.f_globals, frame):
                from estimator_runtime.tf1 import facade

                return facade.import_module(name)
            _refuse_contrib(name)
        return original_module(name, package)

    builtins.__import__ = import_
    importlib.import_module = import_module


def _refuse_contrib(name: str, names: tuple[str, ...] = ()) -> None:
    """Raise ModuleNotFoundError for an import of `tf.contrib` by a library.

    The real TensorFlow has none, although `sys.modules` has that of the program.
    """
    whole = {name, *(f"{name}.{each}" for each in names)}
    for each in whole:
        if f"{each}.".startswith(f"{_PREFIX}contrib."):
            raise ModuleNotFoundError(f"No module named {each!r}", name=each)


def program_with_tensorflow_2() -> str | None:
    """Return the file or name of a program's module that has imported TensorFlow."""
    real = sys.modules.get(_ROOT)
    if real is None:
        return None
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        has_it = any(value is real for value in list(names.values()))
        if has_it and is_program(names, None):
            return str(names.get("__file__") or names.get("__name__"))
    return None


def is_program(globals: Mapping[str, Any] | None, frame: FrameType | None) -> bool:
    """Return whether the code that imports is the program's own.

    Args:
        globals: The globals of the importing code, or None if they are not known.
        frame: The frame of the importing code.
    """
    names = globals
    while True:
        verdict = None if names is None else _verdict(names)
        if verdict is not None:
            return verdict
        # Code without a module, such as that of exec(): look at who runs it.
        while frame is not None and frame.f_globals is names:
            frame = frame.f_back
        if frame is None:
            return True
        names = frame.f_globals


def _verdict(names: Mapping[str, Any]) -> bool | None:
    """Return whether a module is the program's, by its globals; None if it is none."""
    file, spec = names.get("__file__"), names.get("__spec__")
    name = getattr(spec, "name", None) or str(names.get("__name__"))
    if name.partition(".")[0] in _packages:
        return True
    if isinstance(file, str):
        return not _is_installed(file)
    if name == "__main__":
        return True
    return None if spec is None else False  # a part of Python has a spec and no file


@functools.cache
def _is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package, Python or this package."""
    path = os.path.abspath(file)
    folders = path.split(os.sep)[:-1]
    if path.startswith(_OURS) or any(each in folders for each in _INSTALLED):
        return True
    if path.startswith(_LIBRARY):
        return True
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    own = os.path.dirname(os.path.realpath(main)) if main else os.getcwd()
    found = {os.path.abspath(each or os.curdir) for each in sys.path}
    return any(
        str(folder) in found
        and os.path.realpath(folder) != own
        and any(folder.glob("*.dist-info"))
        for folder in pathlib.Path(path).parents
    )
