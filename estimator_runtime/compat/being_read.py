"""Estimators hold the checkpoint that they read, so that nobody deletes it.

An evaluator of a large model may take longer than `keep_checkpoint_max` checkpoints are
there, and its exporters read the same one once more.
"""

import contextlib
import functools
import inspect
import logging
import os
import time

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.checkpoint import lease

_logger = logging.getLogger(__name__)
# A busy disk may take seconds to sync the state file, which names the newer one.
_PATIENCE_SECS = 30.0
_LOOK_SECS = 0.05


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
        return _held(lambda: original(self), lease.hold)

    return latest_checkpoint


def _held(latest, hold, clock=time.monotonic, pause=time.sleep):
    """Hold the newest checkpoint; give its path, or None.

    Args:
        latest: Gives its path, or None.
        hold: Holds one, of (path); tells whether that is there, and stays.
        clock: Gives seconds.
        pause: Waits, of (seconds).
    """
    deadline = clock() + _PATIENCE_SECS
    prefix = latest()
    # Between its name and the lease it may be deleted: then there is a newer one.
    while prefix is not None and not hold(prefix):
        newer = latest()
        if newer == prefix:
            # It is about to be deleted, and the newer one not named yet: whoever
            # deletes it waits for the disk in between.
            if not os.path.exists(f"{prefix}.index"):
                break
            if clock() >= deadline:
                _logger.warning(
                    "%s is read although somebody has been about to delete it for %g s",
                    prefix,
                    _PATIENCE_SECS,
                )
                break
            pause(_LOOK_SECS)
        prefix = newer
    return prefix


def _holding(original, latest):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def read(self, *args, **kwargs):
        call = signature.bind(self, *args, **kwargs)
        with lease.together():
            _give_checkpoint(call, lambda: latest(self), lease.hold)
            return original(*call.args, **call.kwargs)

    return read


def _holding_until_done(original, latest):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def read(self, *args, **kwargs):
        call = signature.bind(self, *args, **kwargs)
        # What a generator sets in a context its caller would see: so not `together`.
        with contextlib.ExitStack() as leases:

            def hold(prefix):
                return lease.hold_in(leases, prefix)

            _give_checkpoint(call, lambda: latest(self), hold)
            yield from original(*call.args, **call.kwargs)

    return read


def _give_checkpoint(call, latest, hold):
    """Hold the checkpoint that a call is to read; name the newest to it, if none is."""
    prefix = call.arguments.get("checkpoint_path")
    if prefix:
        hold(os.fsdecode(prefix))
    else:
        call.arguments["checkpoint_path"] = _held(latest, hold)
