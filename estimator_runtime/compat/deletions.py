"""Savers do not delete a checkpoint that somebody reads."""

import functools

from tensorflow.python.checkpoint import checkpoint_management

from estimator_runtime.checkpoint import lease

# Checkpoints that a Saver of this process would have deleted, had nobody read them.
_late: list = []


def patch_saver(_module):
    """Let Savers ask before they delete a checkpoint; they try again later."""
    checkpoint_management.remove_checkpoint = _asking(
        checkpoint_management.remove_checkpoint
    )


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
