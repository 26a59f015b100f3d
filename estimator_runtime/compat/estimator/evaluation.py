"""An evaluation between two steps of a training ends soon when that is to stop.

A local `train_and_evaluate` evaluates in a listener of the hook that saves
checkpoints, in the middle of the training's session. When the process is told to end,
the training is what is to be saved; the evaluation, of a checkpoint that is there
already, can be made again by whoever goes on. Cut short, it writes no metrics: they
would be those of a part of the data.
"""

import functools
import logging

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator, training

from estimator_runtime import preemption
from estimator_runtime.compat import calls

_logger = logging.getLogger(__name__)


class _Cut(Exception):
    """An evaluation was not brought to its end."""


class _CutHook(tf.compat.v1.train.SessionRunHook):
    """Ends an evaluation at a step of its own, without results."""

    def before_run(self, run_context):
        """Look whether the training is to stop."""
        if preemption.is_requested():
            raise _Cut


_listening = 0  # how many listeners of a training are evaluating, inside each other


def patch_estimator(_module):
    """Let the evaluations of a local `train_and_evaluate` end early."""
    listener = training._NewCheckpointListenerForEvaluate
    for name in ("after_save", "end"):
        setattr(listener, name, _ending_early(getattr(listener, name)))
    original = estimator.Estimator._evaluate_run
    bind = calls.binder(original)

    @functools.wraps(original)
    def evaluate_run(*args, **kwargs):
        call = bind(*args, **kwargs)
        if _listening:
            hooks = call.arguments["all_hooks"] or ()
            call.arguments["all_hooks"] = [*hooks, _CutHook()]
        return original(*call.args, **call.kwargs)

    estimator.Estimator._evaluate_run = evaluate_run


def _ending_early(original):
    @functools.wraps(original)
    def listen(self, *args, **kwargs):
        global _listening
        if preemption.is_requested():
            return None
        _listening += 1
        try:
            return original(self, *args, **kwargs)
        except _Cut:
            _logger.warning("the evaluation was left, because the training is to stop")
            return None
        finally:
            _listening -= 1

    return listen
