"""TensorFlow's private modules as they were in 1.15: today's, with their former names.

The program gets them and the files of `tf.contrib`, so that both have the same classes.
"""

import importlib
import types
from typing import Any

import tensorflow as tf

from estimator_runtime.tf1.contrib.former_names import FOLDERS, MODULES, NAMES
from estimator_runtime.tf1.contrib.gone import gone

CONTRIB = "tensorflow.contrib"
_MISSING = object()
# The package that has Keras 2: it is tf.keras.
_KERAS = "keras" if tf.__version__.startswith("2.15.") else "tf_keras"


def import_module(name: str) -> types.ModuleType:
    """Return the real module of a name, as plain `importlib.import_module` does.

    That one is wrapped in this mode, and refuses `tensorflow.contrib` to libraries.
    """
    return importlib.__import__(name, fromlist=("*",))


def find_module(name: str) -> types.ModuleType | None:
    """Return a module, or None if there is none of this name."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and imports something that is missing
        return None


def _today(name: str) -> str | None:
    """Return the present name of a module of 1.15; None if it is gone."""
    if name in MODULES:
        found = MODULES[name]
        return None if found is None else found.replace("{keras}", _KERAS)
    for old, new in FOLDERS.items():
        if f"{name}.".startswith(f"{old}."):
            present = new.replace("{keras}", _KERAS) + name.removeprefix(old)
            if find_module(present) is not None:
                return present
    return name


def _has_names(name: str) -> bool:
    """Return whether a module, or one below it, has other names today."""
    tables = (NAMES, MODULES, FOLDERS)
    is_in_folder = any(f"{name}.".startswith(f"{old}.") for old in FOLDERS)
    return is_in_folder or any(
        f"{key}.".startswith(f"{name}.") for table in tables for key in table
    )


class ModuleView(types.ModuleType):
    """A module of today, with the names that it had in 1.15.

    Args:
        name: Its name in 1.15.
        target: The module of today; None if it is gone.
        views: Makes the views of the modules below it.
    """

    def __init__(
        self, name: str, target: types.ModuleType | None, views: "Views"
    ) -> None:
        super().__init__(name)
        self._target = target
        self._views = views

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            return getattr(self._target, name)
        value = self._look_up(name)
        setattr(self, name, value)
        return value

    def _look_up(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        source = NAMES.get(self.__name__, {}).get(name, _MISSING)
        if source is not _MISSING:
            return _resolve(source, full)
        value = getattr(self._target, name, _MISSING)
        is_module = value is _MISSING or isinstance(value, types.ModuleType)
        if is_module and name != "__all__" and self._views.has(full):
            return self._views.module(full)
        if value is _MISSING and self._target is not None:
            value = find_module(f"{self._target.__name__}.{name}") or _MISSING
        if value is _MISSING:
            raise AttributeError(
                f"TensorFlow 1.15's {full} has no place in today's TensorFlow",
                name=name,
                obj=self,
            )
        return value

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._target), *NAMES.get(self.__name__, ())})

    def copy(self) -> types.ModuleType:
        """Return a plain module with the public names, for `import *`."""
        made = types.ModuleType(self.__name__)
        for name in dir(self):
            if not name.startswith("_") or name == "__all__":
                setattr(made, name, getattr(self, name))
        return made


def _resolve(source: Any, full: str) -> Any:
    """Return what an entry of the table of names stands for."""
    if source is None:
        return gone(full)
    if not isinstance(source, str):
        return source
    module_name, _, attribute = source.replace("{keras}", _KERAS).partition(":")
    value: Any = import_module(module_name)
    for part in filter(None, attribute.split(".")):
        value = getattr(value, part)
    return value


class Views:
    """The modules that the program and the files of `tf.contrib` get.

    Args:
        tensorflow: The module `tensorflow` of the program.
    """

    def __init__(self, tensorflow: types.ModuleType) -> None:
        self._made: dict[str, types.ModuleType] = {"tensorflow": tensorflow}

    def module(self, name: str) -> types.ModuleType:
        """Return the module that had a name in 1.15.

        Raises:
            ModuleNotFoundError: If there is none today.
        """
        if name not in self._made:
            if f"{name}.".startswith(f"{CONTRIB}."):
                return import_module(name)
            present = _today(name)
            target = None if present is None else import_module(present)
            if target is not None and not _has_names(name):
                return target
            self._made[name] = ModuleView(name, target, self)
        return self._made[name]

    def has(self, name: str) -> bool:
        """Return whether the tables lead to a module that had a name in 1.15."""
        if not _has_names(name):
            return False
        present = _today(name)
        return present is None or find_module(present) is not None

    def complete(self, module: types.ModuleType, name: str) -> None:
        """Import a module, if it is one, that a statement takes from its package."""
        if (
            name != "*"
            and not isinstance(module, ModuleView)
            and not hasattr(module, name)
        ):
            find_module(f"{module.__name__}.{name}")
