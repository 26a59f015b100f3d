"""Estimators hold the checkpoint that they read, so that nobody deletes it.

An evaluator of a large model may take longer than `keep_checkpoint_max` checkpoints are
there, and its exporters read the same one once more.
"""

import contextlib
import functools
import inspect

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.checkpoint import lease


def patch_estimator(_module):
    """Let Estimators hold the checkpoints that they read."""
    cls = estimator.Estimator
    cls.latest_checkpoint = _holding_latest(cls.latest_checkpoint)
    cls.predict = _holding_until_done(cls.predict)
    for name in ("evaluate", "_export_all_saved_models"):
        setattr(cls, name, _holding(getattr(cls, name)))


def _holding_latest(original):
    """Hold the newest checkpoint, if this is part of something that reads it."""

    @functools.wraps(original)
    def latest_checkpoint(self):
        prefix = original(self)
        # Between its name and the lease it may be deleted: then there is a newer one.
        while prefix is not None and lease.is_together() and not lease.hold(prefix):
            newer = original(self)
            if newer == prefix:
                break
            prefix = newer
        return prefix

    return latest_checkpoint


def _holding(original):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def read(self, *args, **kwargs):
        call = signature.bind(self, *args, **kwargs)
        with lease.together():
            _hold_checkpoint(self, call)
            return original(*call.args, **call.kwargs)

    return read


def _holding_until_done(original):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def read(self, *args, **kwargs):
        call = signature.bind(self, *args, **kwargs)
        # What a generator sets in a context its caller would see: so not `together`.
        prefix = call.arguments.get("checkpoint_path") or self.latest_checkpoint()
        call.arguments["checkpoint_path"] = prefix
        with lease.reading(prefix) if prefix else contextlib.nullcontext():
            yield from original(*call.args, **call.kwargs)

    return read


def _hold_checkpoint(self, call):
    prefix = call.arguments.get("checkpoint_path")
    if prefix:
        lease.hold(str(prefix))
    else:
        call.arguments["checkpoint_path"] = self.latest_checkpoint()
