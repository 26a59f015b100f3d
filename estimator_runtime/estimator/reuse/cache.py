"""The graphs that one Estimator keeps."""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from estimator_runtime.estimator.reuse.export import ExportGraph
from estimator_runtime.estimator.reuse.inputs import CannotReuse
from estimator_runtime.estimator.reuse.model import Model, checkpoint_identity

_logger = logging.getLogger(__name__)
# Evaluation, prediction and export, and one of them with other inputs.
MAX_GRAPHS = 4
_MAX_REFUSALS = 16
_PLAIN = (bool, bytes, complex, float, int, str, type(None))


class GraphCache:
    """The graphs that one Estimator keeps, at most `MAX_GRAPHS`.

    The one that was used least recently is dropped for a new one. A deep copy of a
    cache, or one that is pickled with its Estimator, is empty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By key; reentrant, as a model_fn may use the same Estimator.
        self._building: dict[Hashable, threading.RLock] = {}
        self._kept: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
        self._refused: dict[Hashable, str] = {}
        self._logged: set[str] = set()
        self._shapes: dict[Hashable, Hashable] = {}

    def model(self, key: Hashable, make: Callable[[], Model]) -> Model:
        """Return the model for a key, which is made if it is not there.

        Args:
            key: All that the graph depends on.
            make: Makes the model.

        Raises:
            CannotReuse: If the calls with this key build their own graphs. The model
                is not made again to find that out.
        """
        with self._lock:
            reason = self._refused.get(key)
        if reason is None:
            try:
                return self._found(key, make)
            except CannotReuse as error:
                reason = str(error)
            except (TypeError, ValueError) as error:
                reason = (
                    f"a graph with fed inputs cannot be built: {_first_line(error)}"
                )
            except Exception as error:  # perhaps not the next time
                reason = f"a graph with fed inputs fails: {_first_line(error)}"
                raise CannotReuse(reason) from error
            with self._lock:
                self._refused[key] = reason
                while len(self._refused) > _MAX_REFUSALS:
                    del self._refused[next(iter(self._refused))]
        # Outside of `except`: that error's traceback would keep graphs alive.
        raise CannotReuse(reason)

    def graph(self, key: Hashable, make: Callable[[], ExportGraph]) -> ExportGraph:
        """Return the graph of an export, which is made if it is not there.

        Args:
            key: All that the graph depends on.
            make: Makes the graph. Its errors are raised.
        """
        return self._found(key, make)

    def _found(self, key: Hashable, make: Callable[[], Any]) -> Any:
        with self._lock:
            building = self._building.setdefault(key, threading.RLock())
        # Calls with other keys do not wait until this one has built its graph.
        with building:
            with self._lock:
                found = self._kept.get(key)
            dropped: list[Any] = []
            try:
                if found is None:
                    found = make()
            finally:
                with self._lock:
                    self._building.pop(key, None)
                    if found is not None:
                        # Another thread, or make() itself, may have made one.
                        replaced = self._kept.get(key, found)
                        if replaced is not found:
                            dropped.append(replaced)
                        self._kept[key] = found
                        self._kept.move_to_end(key)
                    while len(self._kept) > MAX_GRAPHS:
                        dropped.append(self._kept.popitem(last=False)[1])
        for each in dropped:
            each.close()
        return found

    def shapes(self, checkpoint: str) -> Hashable:
        """Return the names and shapes of the variables in a checkpoint.

        Raises:
            CannotReuse: If it cannot be read.
        """
        identity = checkpoint_identity(checkpoint)
        with self._lock:
            known = self._shapes.get(identity)
        if known is None:
            try:
                found = tf.train.load_checkpoint(checkpoint)
                shapes = found.get_variable_to_shape_map()
            except Exception as error:
                raise CannotReuse(
                    f"the checkpoint cannot be read: {_first_line(error)}"
                ) from error
            known = tuple(sorted((name, tuple(dims)) for name, dims in shapes.items()))
            if identity is not None:
                with self._lock:
                    self._shapes = {identity: known}  # mostly the newest one
        return known

    def log_refusal(self, call: str, reason: object) -> None:
        """Log, once for each reason, that a call builds its own graph.

        Args:
            call: "evaluate", "predict" or "export".
            reason: Completes "because ...".
        """
        text = f"reuse_graphs: {call} builds a graph of its own, because {reason}"
        with self._lock:
            if text in self._logged:
                return
            self._logged.add(text)
        _logger.info("%s", text)

    def __len__(self) -> int:
        """Return how many graphs are kept."""
        return len(self._kept)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Make copies empty: a session cannot be copied."""
        return type(self), ()


class _Identical:
    """An object that equals only itself, and stays alive as long as a key has it."""

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identical) and self._thing is other._thing

    def __hash__(self) -> int:
        return id(self._thing)


def by_value(thing: Any) -> Hashable:
    """Return a key for an object: of its plain values, and the identity of others."""
    kind = type(thing)
    if kind in _PLAIN:
        return kind, repr(thing)  # tells -0.0 from 0.0, and finds NaN again
    if kind is dict:
        return kind, tuple((by_value(k), by_value(v)) for k, v in thing.items())
    if kind in (list, tuple):
        return kind, tuple(map(by_value, thing))
    return _Identical(thing)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
