"""Evaluations of a local `train_and_evaluate`, which end early when the training stops.

They run in a listener of the hook that saves checkpoints, while the session of the
training is open. When the process is asked to stop, saving the training comes first,
and an evaluation under way ends early. The evaluated checkpoint exists already, so the
next run can repeat its evaluation. An evaluation that ends early writes no metrics,
because they would describe a part of the data only.

Training waits until a checkpoint that is evaluated is written, but not for the others,
which `throttle_secs` leaves out.
"""

import functools
import logging
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import training

from estimator_runtime.signals import request, session_close
from estimator_runtime.tf_internals.sessions import StockHookedSession

_logger = logging.getLogger(__name__)


class _StopEvaluation(Exception):
    """Raised to end an evaluation before its last step."""


class _StopEvaluationHook(tf.compat.v1.train.SessionRunHook):
    """A hook that ends an evaluation without results if the training has to stop."""

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Raise `_StopEvaluation` if a stop is requested."""
        if request.is_requested():
            raise _StopEvaluation


# Number of nested listeners of a training that are evaluating, in this thread. Another
# thread may evaluate meanwhile, and that is not ended early.
_listening = ContextVar("listening", default=0)


def stop_hooks() -> list[tf.compat.v1.train.SessionRunHook]:
    """Return the hooks that an evaluation in this context needs to end early."""
    return [_StopEvaluationHook()] if _listening.get() else []


def patch_listener(_module: ModuleType) -> None:
    """Make evaluations end early on a stop, and saves wait only for an evaluation."""
    listener = training._NewCheckpointListenerForEvaluate
    listener.will_read = _will_evaluate
    for name in ("after_save", "end"):
        setattr(listener, name, _ending_early(getattr(listener, name)))


def _will_evaluate(self: Any, step: int) -> bool:
    """Return whether the listener may read the checkpoint of a step after its save.

    If the throttle time ends between this call and `after_save`, the listener
    evaluates, and its search for the newest checkpoint waits for the write.
    """
    is_stock = (
        type(self) is training._NewCheckpointListenerForEvaluate
        and type(self._continuous_eval_listener) is training._ContinuousEvalListener
    )
    if not is_stock:  # The program's own methods may read it at any save.
        return True
    return not self._is_first_run and self._timer.should_trigger_for_step(step)


def _ending_early(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of the listener so that it returns early on a stop."""

    @functools.wraps(original)
    def listen(self: Any, *args: Any, **kwargs: Any) -> Any:
        if request.is_requested():
            return None
        before = _listening.set(_listening.get() + 1)
        try:
            return original(self, *args, **kwargs)
        except _StopEvaluation:
            _logger.warning(
                "the evaluation was ended, because the training has to stop"
            )
            return None
        finally:
            _listening.reset(before)

    return listen


def patch_sessions(_module: ModuleType) -> None:
    """Make hooked sessions close within a bounded time, or in the background."""
    original = StockHookedSession.close

    @functools.wraps(original)
    def close(self: Any) -> None:
        # Sessions of this package's loop have something else to close already.
        if isinstance(self._sess, tf.compat.v1.Session):
            self._sess = session_close.closable(self._sess)
        original(self)

    StockHookedSession.close = close
