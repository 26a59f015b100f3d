"""Estimators hold the checkpoint that they read, so that nobody deletes it.

An evaluator of a large model may take longer than `keep_checkpoint_max` checkpoints are
there, and its exporters read the same one once more.
"""

import contextlib
import functools
import os

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.checkpoint import lease, writer
from estimator_runtime.compat import calls


def patch_estimator(_module):
    """Let Estimators hold the checkpoints that they read."""
    cls = estimator.Estimator
    in_folder = cls.latest_checkpoint
    cls.latest_checkpoint = _holding_latest(in_folder)
    # What a subclass says is the newest one counts only for exports.
    cls.evaluate = _holding(cls.evaluate, in_folder)
    cls.predict = _holding_until_done(cls.predict, in_folder)
    cls._export_all_saved_models = _holding(
        cls._export_all_saved_models, lambda self: self.latest_checkpoint()
    )


def _holding_latest(original):
    """Hold the newest checkpoint, if this is part of something that reads it."""

    @functools.wraps(original)
    def latest_checkpoint(self):
        if not lease.is_together():
            return original(self)
        return lease.hold_newest(lambda: original(self))

    return latest_checkpoint


def _holding(original, latest):
    bind = calls.binder(original)

    @functools.wraps(original)
    def read(self, *args, **kwargs):
        call = bind(self, *args, **kwargs)
        with lease.together():
            _give_checkpoint(call, lambda: latest(self), lease.hold)
            return original(*call.args, **call.kwargs)

    return read


def _holding_until_done(original, latest):
    bind = calls.binder(original)

    def generate(self, call):
        # What a generator sets in a context its caller would see: so not `together`.
        with contextlib.ExitStack() as leases:

            def hold(prefix):
                return lease.hold_in(leases, prefix)

            _give_checkpoint(call, lambda: latest(self), hold)
            yield from original(*call.args, **call.kwargs)

    @functools.wraps(original)
    def read(self, *args, **kwargs):
        # Now: in the generator, wrong arguments would be refused at the first result.
        return generate(self, bind(self, *args, **kwargs))

    return read


def _give_checkpoint(call, latest, hold):
    """Hold the checkpoint that a call is to read; name the newest to it, if none is."""
    prefix = call.arguments.get("checkpoint_path")
    if prefix:
        writer.wait_for_own()
        hold(os.fsdecode(prefix))
    else:
        call.arguments["checkpoint_path"] = lease.hold_newest(latest, hold)
