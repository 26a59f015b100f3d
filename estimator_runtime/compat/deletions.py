"""Savers do not delete a checkpoint that somebody reads."""

import collections
import functools
import logging
import os

from tensorflow.python.checkpoint import checkpoint_management

from estimator_runtime.checkpoint import lease

_logger = logging.getLogger(__name__)
# (prefix, its index's identity, arguments) of checkpoints that a Saver of this process
# would have deleted, had nobody read them. Savers in several threads have one.
_late: collections.deque = collections.deque()


def patch_saver(_module):
    """Let Savers ask before they delete a checkpoint; they try again later."""
    checkpoint_management.remove_checkpoint = _asking(
        checkpoint_management.remove_checkpoint
    )


def _asking(original):
    def remove(prefix, args, kwargs):
        with lease.deleting(prefix) as is_free:
            if is_free:
                original(prefix, *args, **kwargs)
            else:
                _late.append((prefix, _identity(prefix), args, kwargs))

    @functools.wraps(original)
    def remove_checkpoint(checkpoint_prefix, *args, **kwargs):
        for _ in range(len(_late)):
            try:
                prefix, identity, its_args, its_kwargs = _late.popleft()
            except IndexError:  # another thread has had it
                break
            # One that was saved anew under the name is somebody else's to delete.
            if identity is None or identity != _identity(prefix):
                continue
            try:
                remove(prefix, its_args, its_kwargs)
            except Exception as error:  # noqa: BLE001 (what a Saver makes of it, too)
                _logger.warning("%s cannot be deleted: %s", prefix, error)
        remove(checkpoint_prefix, args, kwargs)

    return remove_checkpoint


def _identity(prefix):
    try:
        found = os.stat(f"{prefix}.index")
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
