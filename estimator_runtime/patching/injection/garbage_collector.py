"""Spares the import of TensorFlow from Python's garbage collector.

Importing TensorFlow creates 400,000 objects that live as long as the process. The
collector scans them again and again. That takes a third of the import time, a tenth of
the time of a short program, and a second at the end of every process. This module turns
the collector off during the import, and makes it ignore the imported objects for good.

Objects that the program itself creates, before or after the import, are collected as
usual. Files, `__del__` methods and weak references behave as before, even when the
process ends.
"""

import collections
import contextlib
import ctypes
import gc
import importlib.util
import itertools
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from estimator_runtime.config.options import parse_switch

VARIABLE = "ESTIMATOR_RUNTIME_FREEZE_IMPORT"
_TENSORFLOW = "tensorflow"


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the collector should ignore the import of TensorFlow.

    Raises:
        ConfigError: If the variable is neither 0 nor 1.
    """
    text = environ.get(VARIABLE, "1")
    return parse_switch(text, VARIABLE, "for an import that is not collected")


def spare_import() -> None:
    """Spare the import of TensorFlow, unless this process has already imported it."""
    if _TENSORFLOW not in sys.modules:
        sys.meta_path.insert(0, _SparingFinder())


@contextlib.contextmanager
def sparing() -> Iterator[None]:
    """Turn the collector off in this context, and freeze the objects created in it.

    If the context raises an exception, nothing is frozen. Afterwards the collector is
    on if it was on before.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    # Not the objects: what another thread stops using in this context has to end then,
    # and `tuple` needs the only reference to a tuple that it is still making.
    before = set(map(id, gc.get_objects()))
    try:
        yield
        _freeze_all_but(before)
    finally:
        if is_collecting:
            gc.enable()


def _freeze_all_but(ids: Container[int]) -> None:
    """Freeze all objects that the collector knows, but leave those of `ids` to it.

    `gc.freeze` allows no exceptions, so the given objects are untracked for a moment.
    """
    untrack = ctypes.pythonapi.PyObject_GC_UnTrack
    track = ctypes.pythonapi.PyObject_GC_Track
    untrack.argtypes = track.argtypes = [ctypes.py_object]
    untrack.restype = track.restype = None
    known: list[Any] = []
    objects: list[Any] = []
    found = itertools.compress(known, map(ids.__contains__, map(id, known)))
    # One call, in which Python runs no signal handler and no other thread. No object
    # may be left untracked, nor be tracked twice: a dict tracks itself at a change.
    collections.deque(
        itertools.chain(
            map(known.extend, itertools.starmap(gc.get_objects, [()])),
            map(objects.extend, [found]),
            itertools.starmap(known.clear, [()]),
            map(untrack, objects),
            itertools.starmap(gc.freeze, [()]),
            map(track, itertools.filterfalse(gc.is_tracked, objects)),
            itertools.starmap(objects.clear, [()]),
        ),
        maxlen=0,
    )


class _SparingFinder(MetaPathFinder):
    """Finds TensorFlow like the other finders, and spares its import."""

    _is_searching = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of TensorFlow; None for other names."""
        if fullname != _TENSORFLOW or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _SparingLoader(spec.loader)
        return spec


class _SparingLoader(Loader):
    """A loader that spares the import of a module, and leaves no trace in it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy that is still being made
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with the original loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Restore the original loader in the module, and run the module with it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with sparing():
            self._loader.exec_module(module)
            # Garbage of the import must not be frozen. Some of it refers to modules of
            # the program (inspect copies sys.modules), which would then live forever.
            gc.collect()
