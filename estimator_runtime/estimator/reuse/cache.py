"""The graphs that one Estimator keeps."""

from __future__ import annotations

import collections
import logging
import math
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as frozen

from estimator_runtime.config.options import TrainingOptions
from estimator_runtime.estimator.reuse import keys
from estimator_runtime.estimator.reuse.inputs import CannotReuse, first_line
from estimator_runtime.estimator.reuse.model import Model, checkpoint_identity

_logger = logging.getLogger(__name__)
_ATTRIBUTE = "_estimator_runtime_graph_cache"
# Evaluation, prediction and export, and one of them with other inputs.
MAX_GRAPHS = 4
# Of a checkpoint whose model is kept although nobody has asked for it: 80 MB for each
# graph if all are float32. The more values, the less of a call is building.
MAX_VALUES = 20_000_000
# How many Estimators keep graphs at once although nobody has asked for it.
MAX_ESTIMATORS = 4
_MAX_REFUSALS = 16
# Methods of the frozen Estimator that do not matter to a graph.
_OVERRIDABLE = {
    "__init__",
    "_assert_members_are_not_overridden",
    "export_savedmodel",
    "latest_checkpoint",
}


class IsKept(Exception):
    """Ends a method of the frozen Estimator, because a kept graph serves the call.

    Args:
        kept: What serves it.
    """

    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.kept = kept


class GraphCache:
    """The graphs that one Estimator keeps, at most `MAX_GRAPHS`.

    The one that was used least recently is dropped for a new one. A deep copy of a
    cache, or one that is pickled with its Estimator, is empty.

    Attributes:
        is_default: Whether nobody has asked for it. Then it keeps no large models.
    """

    is_default = False

    def __init__(self) -> None:
        # Reentrant, as a model_fn may use the same Estimator.
        self._lock = threading.RLock()
        self._kept: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
        self._refused: collections.OrderedDict[Hashable, str] = (
            collections.OrderedDict()
        )
        self._logged: set[str] = set()
        self._shapes: dict[Hashable, tuple[tuple[str, tuple[int, ...]], ...]] = {}

    def model(self, key: Hashable, make: Callable[[], Model]) -> Model:
        """Return the model for a key; make it if there is none.

        Args:
            key: Everything that the graph depends on.
            make: Makes the model.

        Raises:
            CannotReuse: If the calls with this key build their own graphs. The model
                is not made again to find that out.
        """
        with self._lock:
            reason = self._refused.get(key)
            if reason is None:
                try:
                    return self.find(key) or self.keep(key, make())
                except CannotReuse as error:
                    reason = str(error)
                except (TypeError, ValueError) as error:
                    reason = (
                        f"a graph with fed inputs cannot be built: {first_line(error)}"
                    )
                except Exception as error:  # perhaps not the next time
                    reason = f"a graph with fed inputs fails: {first_line(error)}"
                    raise CannotReuse(reason) from error
                self._refused[key] = reason
                if len(self._refused) > _MAX_REFUSALS:
                    self._refused.popitem(last=False)
        # Outside of `except`: that error's traceback would keep graphs alive.
        raise CannotReuse(reason)

    def find(self, key: Hashable) -> Any:
        """Return the graph that is kept for a key, or None."""
        with self._lock:
            found = self._kept.get(key)
            return found and self.keep(key, found)

    def keep(self, key: Hashable, graph: Any) -> Any:
        """Keep a graph, which was used last, and return it.

        Args:
            key: Everything that the graph depends on.
            graph: The graph, with its sessions, which end with it.
        """
        with self._lock:
            kept = self._kept  # `clear` does not wait for the lock
            kept.pop(key, None)
            kept[key] = graph
            if len(kept) > MAX_GRAPHS:
                kept.popitem(last=False)
            return graph

    def shapes(self, checkpoint: str) -> Hashable:
        """Return the names and shapes of the variables in a checkpoint.

        Raises:
            CannotReuse: If it cannot be read.
        """
        identity = checkpoint_identity(checkpoint)
        known = self._shapes.get(identity)
        if known is None:
            try:
                found = tf.train.load_checkpoint(checkpoint)
                shapes = found.get_variable_to_shape_map()
            except Exception as error:
                raise CannotReuse(
                    f"the checkpoint cannot be read: {first_line(error)}"
                ) from error
            known = tuple(sorted((name, tuple(dims)) for name, dims in shapes.items()))
            if identity is not None:
                self._shapes = {identity: known}  # mostly the newest one
        if self.is_default and sum(math.prod(dims) for _, dims in known) > MAX_VALUES:
            raise CannotReuse(
                f"the checkpoint has more than {MAX_VALUES:,} values; give "
                "reuse_graphs=True to keep them in memory"
            )
        return known

    def log_refusal(self, call: str, reason: object) -> None:
        """Log, once for each reason, that a call builds its own graph.

        Args:
            call: "evaluate", "predict" or "export".
            reason: Completes "because ...".
        """
        text = f"reuse_graphs: {call} builds a graph of its own, because {reason}"
        if text not in self._logged:
            self._logged.add(text)
            _logger.info("%s", text)

    def clear(self) -> None:
        """Drop all graphs. A call that uses one keeps it until it is done."""
        self._kept = collections.OrderedDict()

    def __len__(self) -> int:
        """Return how many graphs are kept."""
        return len(self._kept)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Make copies empty: a session cannot be copied."""
        return type(self), ()


def cache_of(estimator: Any) -> GraphCache | None:
    """Return the cache of an Estimator, or None if it reuses no graphs."""
    wanted = TrainingOptions.of(estimator._config).reuse_graphs
    is_default = wanted == "auto"
    if not wanted or (is_default and keys.arguments(estimator) is None):
        return None
    cache = vars(estimator).setdefault(_ATTRIBUTE, GraphCache())
    cache.is_default = is_default
    if is_default:
        _drop_all_but_newest(cache)
    return cache


_recent: list[weakref.ref[GraphCache]] = []  # the one that was used last is the last
_recent_lock = threading.Lock()


def _drop_all_but_newest(cache: GraphCache) -> None:
    """Drop the graphs of Estimators by default, but for those of the last few."""
    with _recent_lock:
        caches = [found for each in _recent if (found := each()) not in (None, cache)]
        # At each call again: a graph that one of them builds meanwhile is kept later.
        for each in caches[: 1 - MAX_ESTIMATORS]:
            each.clear()
        _recent[:] = map(weakref.ref, [*caches, cache])


def cache_for(
    call: str, estimator: Any, obstacles: Mapping[str, object] | None = None
) -> GraphCache | None:
    """Return the cache for a call, or None if the call builds its own graph.

    The log says why, if the Estimator reuses graphs at all.

    Args:
        call: "evaluate", "predict" or "export".
        estimator: The Estimator.
        obstacles: Maps each reason to build a graph to whether it applies.
    """
    cache = cache_of(estimator)
    if cache is None:
        return None
    found = [_own_method(estimator)]
    found += [reason for reason, applies in (obstacles or {}).items() if applies]
    reason = next(filter(None, found), None)
    if reason is None:
        return cache
    cache.log_refusal(call, reason)
    return None


def _own_method(estimator: Any) -> str | None:
    """Return which method of the frozen class an Estimator overrides, as a reason."""
    cls = type(estimator)
    for name, stock in vars(frozen.Estimator).items():
        is_own = getattr(cls, name) is not stock or name in vars(estimator)
        if callable(stock) and is_own and name not in _OVERRIDABLE:
            return f"{cls.__name__} has a {name} of its own"
    return None
