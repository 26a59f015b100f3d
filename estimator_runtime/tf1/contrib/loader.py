"""Imports the original `tf.contrib`, as modules named `tensorflow.contrib...`.

Each of its files runs with builtins of its own, whose `__import__` answers imports of
TensorFlow with views (see `views`). So the files are used as they are, and TensorFlow's
own modules do not change. The modules are in `sys.modules`, but not attributes of the
real `tensorflow`; libraries do not find them (see `tf1.importer`).

Three kinds of files are not executed: the generated wrappers of ops (see `ops`), the
messages of an older protobuf (see `messages`), and what `former_names` replaces.
"""

import builtins
import functools
import importlib.util
import pathlib
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

from estimator_runtime.errors import CompatibilityError
from estimator_runtime.tf1.alias import Alias
from estimator_runtime.tf1.contrib import messages, ops, successors
from estimator_runtime.tf1.contrib.former_names import (
    CHANGED_LINES,
    FORMER_FOLDERS,
    MODULES_BELOW,
    REPLACED,
)
from estimator_runtime.tf1.contrib.views import CONTRIB, ModuleView, Views, find_module

_PREFIX = f"{CONTRIB}."


class Finder(MetaPathFinder):
    """Finds the modules of `tf.contrib` in its folder.

    Args:
        folder: The folder that `wheel.find` returns.
        views: What the files get as TensorFlow's modules.
    """

    def __init__(self, folder: pathlib.Path, views: Views) -> None:
        self._folder = folder
        self._builtins = {**vars(builtins), "__import__": _statement(views)}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a module of `tf.contrib`, or None."""
        if not fullname.startswith(_PREFIX):
            return None
        name = fullname.removeprefix(_PREFIX)
        if name in REPLACED:
            return ModuleSpec(fullname, Alias(REPLACED[name]), is_package=True)
        base = self._folder.joinpath(*name.split("."))
        if (init := base / "__init__.py").is_file():
            places, file = [str(base)], init
        else:
            places, file = None, base.with_name(f"{base.name}.py")
        if not file.is_file():
            return self._former(fullname)
        loader = _ContribLoader(fullname, str(file), self._builtins)
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=places
        )

    def _former(self, fullname: str) -> ModuleSpec | None:
        """Return the spec of a module that 1.15.5 has at another place, or None."""
        name = fullname.removeprefix(_PREFIX)
        for old, new in FORMER_FOLDERS.items():
            present = new + name.removeprefix(old)
            if name.startswith(old) and find_module(present) is not None:
                return ModuleSpec(fullname, Alias(present))
        # Not getattr, which looks for the module that is being looked for.
        parent, _, last = fullname.rpartition(".")
        member = vars(sys.modules[parent]).get(last)
        if isinstance(member, types.ModuleType):
            return ModuleSpec(fullname, Alias(member.__name__), is_package=True)
        folder, _, rest = name.partition(".")
        inner = self._folder.joinpath(folder, "python", folder, *rest.split("."))
        if rest and (inner.is_dir() or inner.with_name(f"{inner.name}.py").is_file()):
            alias = Alias(f"{_PREFIX}{folder}.python.{folder}.{rest}")
            return ModuleSpec(fullname, alias, is_package=True)
        if any(each.startswith(f"{folder}.{rest}.") for each in REPLACED if rest):
            return ModuleSpec(fullname, None, is_package=True)
        return None


class _ContribLoader(SourceFileLoader):
    """Loads one file of `tf.contrib`."""

    def __init__(self, name: str, path: str, own_builtins: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._short = name.removeprefix(_PREFIX)
        self._builtins = own_builtins

    def get_data(self, path: str) -> bytes:
        """Return the content of a file, with the lines that have to be different."""
        data = super().get_data(path)
        if path == self.path:
            for old, new in CHANGED_LINES.get(self._short, ()):
                if old.encode() not in data:
                    raise CompatibilityError(f"{path} lacks the text {old!r}")
                data = data.replace(old.encode(), new.encode())
        return data

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Return what Python compares with a file of bytecode."""
        if self._short in CHANGED_LINES:
            raise OSError("the bytecode of a file that is changed is not kept")
        return super().path_stats(path)

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute the file, or set what stands in its place."""
        vars(module)["__builtins__"] = self._builtins
        name = self._short.rpartition(".")[2]
        if name.startswith("gen_"):
            ops.define(module, self.get_data(self.path))
        elif name.endswith("_pb2"):
            messages.define(module, self.get_data(self.path))
        else:
            super().exec_module(module)
            find = functools.partial(_find_former, self._short)
            vars(module).setdefault("__getattr__", find)


def _find_former(path: str, name: str) -> Any:
    """Return a name that 1.15.5 has elsewhere: a submodule, its own, or TensorFlow's.

    Raises:
        AttributeError: If there is none.
    """
    if (below := MODULES_BELOW.get(f"{path}.{name}")) is not None:
        return getattr(find_module(_PREFIX + below), name)
    module = None if name.startswith("__") else find_module(f"{_PREFIX}{path}.{name}")
    try:
        return module or successors.find(path, name)
    except AttributeError:
        text = f"TensorFlow 1.15.5 has no tf.contrib.{path}.{name}"
        raise AttributeError(text, name=name) from None


def _statement(views: Views) -> Any:
    """Return the `__import__` of the files of `tf.contrib`."""

    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        root = name.partition(".")[0]
        if level or root not in ("tensorflow", "tensorflow_estimator"):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = views.module(name)
        if not fromlist:
            return views.module(root)
        if isinstance(found, ModuleView) and "*" in fromlist:
            return found.copy()
        for each in fromlist:
            views.complete(found, each)
        return found

    return import_
