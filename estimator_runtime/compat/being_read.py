"""Estimators keep the checkpoint that they read, and Savers do not delete it.

An evaluator of a large model may take longer than `keep_checkpoint_max` checkpoints are
there, and its exporters read the same one once more.
"""

import contextlib
import functools
import inspect

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.checkpoint import lease

# Checkpoints that a Saver of this process would have deleted, had nobody read them.
_late: list = []


def patch_estimator(_module):
    """Let Estimators hold what they read, and Savers ask before they delete."""
    cls = estimator.Estimator
    cls.latest_checkpoint = _holding_latest(cls.latest_checkpoint)
    cls.predict = _holding_until_done(cls.predict)
    for name in ("evaluate", "_export_all_saved_models"):
        setattr(cls, name, _holding(getattr(cls, name)))
    checkpoint_management.remove_checkpoint = _asking(
        checkpoint_management.remove_checkpoint
    )


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


def _asking(original):
    @functools.wraps(original)
    def remove_checkpoint(checkpoint_prefix, *args, **kwargs):
        waiting = [*_late, (checkpoint_prefix, args, kwargs)]
        _late.clear()
        for prefix, its_args, its_kwargs in waiting:
            with lease.deleting(prefix) as is_free:
                if is_free:
                    original(prefix, *its_args, **its_kwargs)
                else:
                    _late.append((prefix, its_args, its_kwargs))

    return remove_checkpoint
