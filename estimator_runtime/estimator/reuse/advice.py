"""Log once how much faster kept graphs would make repeated calls."""

from __future__ import annotations

import collections
import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_runtime.config.options import TrainingOptions

_logger = logging.getLogger(__name__)
_clock = time.perf_counter
_ATTRIBUTE = "_estimator_runtime_repetitions"
# Only a call that has been repeated so often, and takes longer than this, is worth it.
_CALLS = 3
_SHORTEST_SECS = 0.1


class _Repetitions:
    """The calls of one Estimator that built graphs of their own."""

    def __init__(self) -> None:
        self.calls: collections.Counter[str] = collections.Counter()
        self.built_secs = 0.0  # in the last call of model_fn
        self.was_advised = False


def _of(estimator: Any) -> _Repetitions:
    return vars(estimator).setdefault(_ATTRIBUTE, _Repetitions())


@contextlib.contextmanager
def building(estimator: Any, mode: str) -> Iterator[None]:
    """Time a call of model_fn, unless it is for a training."""
    began = _clock()
    yield
    if mode != tf.estimator.ModeKeys.TRAIN:
        _of(estimator).built_secs = _clock() - began


@contextlib.contextmanager
def repeated(
    estimator: Any, call: str, obstacles: Mapping[str, object]
) -> Iterator[None]:
    """Time a call that builds its own graph, and say what a kept graph would gain.

    Args:
        estimator: The Estimator.
        call: "evaluate" or "predict".
        obstacles: Maps each reason for which the call needs its own graph to whether it
            applies.
    """
    began = _clock()
    yield
    secs = _clock() - began
    if any(obstacles.values()):
        return
    past = _of(estimator)
    built = past.built_secs
    past.calls[call] += 1
    is_slow = secs >= _SHORTEST_SECS and built >= secs / 2
    if past.was_advised or past.calls[call] < _CALLS or not is_slow:
        return
    past.was_advised = True
    if TrainingOptions.of(estimator._config).reuse_graphs == "auto":
        _logger.info(
            "%s has called model_fn again, for %.2g of its %.2g s. If model_fn builds "
            "the same graph for the same inputs, RunConfig(reuse_graphs=True) or "
            "--reuse-graphs makes this about %.2g times as fast",
            call,
            built,
            secs,
            secs / max(secs - built, 0.001),
        )
