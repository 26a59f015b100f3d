"""The module that the program gets as `tensorflow` in TensorFlow 1 mode.

It has the names of `tensorflow.compat.v1`, `tf.contrib`, and the private packages, such
as `tensorflow.python`, of the real TensorFlow. It copies nothing: each name is looked
up when it is used.
"""

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Mapping
from typing import Any

from estimator_runtime.tf1.contrib import original, successors, wheel
from estimator_runtime.tf1.contrib.views import ModuleView, Views

_ROOT = "tensorflow"
_V1 = "tensorflow.compat.v1"
_CONTRIB = "contrib"
_EXAMPLES = "examples"
_MISSING = object()
# What the API of TensorFlow 1 does not have, and programs import all the same.
_REAL = frozenset({"_api", "compiler", "core", "python", "tools"})
# Private, and yet an attribute of TensorFlow 1, which programs read checkpoints with.
_CHECKPOINT_READER = "pywrap_tensorflow"
_GONE = {
    _EXAMPLES: f"the tutorials and their reader of MNIST went with TensorFlow 1; "
    f"{wheel.COMMAND} brings back the reader",
    "models": "it never was a part of TensorFlow, but of github.com/tensorflow/models",
}


def import_statement(name: str, names: tuple[str, ...]) -> types.ModuleType:
    """Return what `import name`, or `from name import names`, binds.

    Args:
        name: "tensorflow", or a module in it.
        names: The names after `import` of a statement with `from`, else empty.

    Raises:
        ImportError: If there is no such module, or it lacks one of the names.
    """
    module = import_module(name)
    if isinstance(module, ModuleView) and "*" in names:
        return module.copy()
    for each in names:
        if each != "*":
            _find(module, name, each)
    return module if names else TENSORFLOW


def import_module(name: str) -> types.ModuleType:
    """Return the module `name`, which is "tensorflow" or begins with "tensorflow.".

    Raises:
        ModuleNotFoundError: If there is none.
    """
    parts = name.split(".")[1:]
    importlib.import_module(_V1)
    if parts[:2] == ["compat", "v1"]:
        parts = parts[2:]
    if not parts:
        return TENSORFLOW
    if parts[0] == "python":
        return VIEWS.module(name)
    if parts[0] in _REAL or parts[:2] == ["compat", "v2"]:
        return importlib.import_module(name)
    if parts[0] == _CONTRIB:
        return _import_contrib(parts[1:])
    if parts[0] == _EXAMPLES and (contrib := original.load(VIEWS)) is not None:
        return contrib.module(".".join([wheel.EXAMPLES, *parts[1:]]))
    value: Any = TENSORFLOW
    for index, part in enumerate(parts):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            found = _import_real(parts)
            if found is not None:
                return found
            so_far = ".".join([_ROOT, *parts[: index + 1]])
            text = f"No module named {so_far!r}: {error}"
            raise ModuleNotFoundError(text, name=so_far) from None
    if not isinstance(value, types.ModuleType):
        text = f"No module named {name!r}; it is a {type(value).__name__}"
        raise ModuleNotFoundError(text, name=name)
    return value


def _import_contrib(parts: list[str]) -> types.ModuleType:
    contrib = original.load(VIEWS)
    path = ".".join(parts)
    if not parts:
        return CONTRIB
    if contrib is not None:
        # Of a single name, the module that `tf.contrib` has under it.
        return contrib.module(path) if parts[1:] else contrib.attribute(path)
    if successors.is_module(path):
        return _successor_module(path)
    name = f"{_ROOT}.{_CONTRIB}.{path}"
    try:
        found = successors.find_or_advise(*path.rpartition(".")[::2])
    except AttributeError as error:
        raise ModuleNotFoundError(
            f"No module named {name!r}: {error}", name=name
        ) from None
    raise ModuleNotFoundError(
        f"No module named {name!r}; it is a {type(found).__name__}", name=name
    )


def _import_real(parts: list[str]) -> types.ModuleType | None:
    """Return a module that is no attribute of the API of TensorFlow 1, or None."""
    for root in (_V1, _ROOT):
        name = ".".join([root, *parts])
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise  # the module exists, and imports something that is missing
    return None


def _find(module: types.ModuleType, module_name: str, name: str) -> None:
    """Make sure that a module has a name, which may be a module that is not imported.

    Raises:
        ImportError: If it does not.
    """
    try:
        getattr(module, name)
    except AttributeError as error:
        try:
            import_module(f"{module_name}.{name}")
        except ModuleNotFoundError as second:
            if not str(second).startswith(f"No module named '{module_name}.{name}'"):
                raise
            text = str(error)
            if not isinstance(module, TensorFlow1 | Contrib):
                text = f"cannot import name {name!r} from {module_name!r} ({error})"
            raise ImportError(text, name=module_name) from None


class _Module(types.ModuleType):
    """A module that looks its names up when they are used."""

    # vars(), and a program that searches a module. It is a copy, so a look-up while the
    # program goes through it does not change it, and read-only, so no change is lost.
    @property
    def __dict__(self) -> Mapping[str, Any]:  # type: ignore[override]
        names = dict(_own(self))
        for name in dir(self):
            # Of a package that is missing or broken, or a name of another TensorFlow's.
            with contextlib.suppress(Exception):
                names[name] = getattr(self, name)
        return types.MappingProxyType(names)

    def __reduce__(self) -> tuple[Any, ...]:
        # By cloudpickle, for a function whose globals have it.
        return import_module, (self.__name__,)


def _own(module: types.ModuleType) -> dict[str, Any]:
    """Return the dict in which Python keeps the attributes of a module."""
    return vars(types.ModuleType)["__dict__"].__get__(module)


class TensorFlow1(_Module):
    """The API of TensorFlow 1 as the module `tensorflow`."""

    def __getattr__(self, name: str) -> Any:
        if name == _CONTRIB:
            return CONTRIB
        if name == "compat":
            return COMPAT
        # Much faster than an import, and programs use many names.
        v1 = sys.modules.get(_V1) or importlib.import_module(_V1)
        if name == "__all__":
            return [*v1.__all__, _CONTRIB] if hasattr(v1, "__all__") else dir(self)
        if name == "python":
            return VIEWS.module(f"{_ROOT}.{name}")
        if name in _REAL:
            return importlib.import_module(f"{_ROOT}.{name}")
        value = getattr(v1, name, _MISSING)
        if value is not _MISSING:
            return value
        if name == _CHECKPOINT_READER:
            return VIEWS.module(f"{_ROOT}.python.{name}")
        if name == _EXAMPLES and original.load(VIEWS) is not None:
            return import_module(f"{_ROOT}.{name}")
        why = _GONE.get(name, "neither TensorFlow 1 mode nor tf.compat.v1 has it")
        raise AttributeError(
            f"module {_ROOT!r} has no attribute {name!r}: {why}",
            name=name,
            obj=self,
        )

    def __dir__(self) -> list[str]:
        names = dir(importlib.import_module(_V1))
        return sorted({*_own(self), *names, _CONTRIB, "python"})


class Compat(_Module):
    """`tf.compat`, whose `v1` has `tf.contrib` too, as in TensorFlow 1.15."""

    def __getattr__(self, name: str) -> Any:
        if name == "v1":
            return TENSORFLOW
        return getattr(importlib.import_module(self.__name__), name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self.__name__))


class Contrib(_Module):
    """`tf.contrib`, or one of its modules where the original is not installed.

    Args:
        path: Name of the module below `tf.contrib`; empty for that itself.
    """

    def __init__(self, path: str) -> None:
        name = ".".join(filter(None, [_ROOT, _CONTRIB, path]))
        super().__init__(name, "A part of tf.contrib, in TensorFlow 1 mode.")
        self.__package__ = name
        self._contrib_path = path

    def __getattr__(self, name: str) -> Any:
        path = self._contrib_path
        if name.startswith("__") and name.endswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == "__all__":
            return self._names()
        contrib = None if path else original.load(VIEWS)
        full = ".".join(filter(None, [path, name]))
        value: Any
        if contrib is not None:
            try:
                value = contrib.attribute(name)
            except ModuleNotFoundError as error:
                if error.name != f"{self.__name__}.{name}":
                    raise
                text = f"TensorFlow 1.15.5 has no tf.contrib.{name}"
                raise AttributeError(text, name=name, obj=self) from None
        elif successors.is_module(full) and not successors.is_member(path, name):
            value = _successor_module(full)
        else:
            value = successors.find_or_advise(path, name)
        # Nothing else sets it, and the next use need not look it up.
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*_own(self), *self._names()})

    def _names(self) -> list[str]:
        contrib = None if self._contrib_path else original.load(VIEWS)
        return contrib.names() if contrib else successors.names(self._contrib_path)


@functools.cache
def _successor_module(path: str) -> Contrib:
    """Return a module of `tf.contrib`, the same at each call."""
    return Contrib(path)


CONTRIB = Contrib("")
COMPAT = Compat(f"{_ROOT}.compat", "tf.compat, in TensorFlow 1 mode.")


def _make_tensorflow() -> TensorFlow1:
    real = importlib.import_module(_ROOT)
    made = TensorFlow1(_ROOT, "The API of TensorFlow 1, by estimator_runtime.")
    made.__file__, made.__path__ = real.__file__, real.__path__
    made.__package__, made.__spec__ = _ROOT, real.__spec__
    return made


TENSORFLOW = _make_tensorflow()
VIEWS = Views(TENSORFLOW)
