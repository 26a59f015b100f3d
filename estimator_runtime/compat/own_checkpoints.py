"""Whoever reads or saves checkpoints in the thread that trains finds the one before.

TensorFlow's hook writes it before the hooks after it are called; ours, while training
goes on. A hook that evaluates, exports or restores every so many steps would get the
checkpoint before. Other threads and processes find what is on the disk, as ever.

A Saver that the program lets save in that thread waits too, where it writes the same
names or the same state file: of two checkpoints the later one is to stay.

The private names here are the same in all tested versions; public functions, of which
programs may have got hold already, ask them first.
"""

import functools

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.training import checkpoint_utils, saver, training

from estimator_runtime.checkpoint import writer
from estimator_runtime.compat import api, calls

# Asked by latest_checkpoint; by checkpoint_exists, and so by a Saver that restores; by
# load_checkpoint, load_variable and list_variables.
_ASKED = (
    (checkpoint_management, "get_checkpoint_state"),
    (checkpoint_management, "_prefix_to_checkpoint_path"),
    (checkpoint_utils, "_get_checkpoint_filename"),
)


def patch_readers_and_savers(_module):
    """Let TensorFlow's readers and Savers wait for the checkpoints of this thread."""
    for module, name in _ASKED:
        setattr(module, name, _waiting(getattr(module, name)))
    saver.Saver.save = _waiting_where_they_meet(saver.Saver.save)
    # The one that is asked by its public names alone.
    state = checkpoint_management.get_checkpoint_state
    saver.get_checkpoint_state = training.get_checkpoint_state = state
    api.add("train", {"get_checkpoint_state": state})


def _waiting(original):
    @functools.wraps(original)
    def ask(*args, **kwargs):
        writer.wait_for_own()
        return original(*args, **kwargs)

    return ask


def _waiting_where_they_meet(original):
    bind = calls.binder(original)

    @functools.wraps(original)
    def save(*args, **kwargs):
        given = bind(*args, **kwargs).arguments
        writer.wait_before_save(given["save_path"], given.get("latest_filename"))
        return original(*args, **kwargs)

    return save
