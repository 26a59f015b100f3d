"""Who looks for a checkpoint in the thread that trains finds the one just saved.

TensorFlow's hook writes it before the hooks after it are called; ours, while training
goes on. A hook that evaluates, exports or restores every so many steps would get the
checkpoint before. Other threads and processes find what is on the disk, as ever.

The names here are private, and the same in all tested versions: the public functions,
of which programs may have got hold already, ask them first.
"""

import functools

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.training import checkpoint_utils

from estimator_runtime.checkpoint import writer

# Asked by get_checkpoint_state and latest_checkpoint; by checkpoint_exists, and so by a
# Saver that restores; by load_checkpoint, load_variable and list_variables.
_ASKED = (
    (checkpoint_management, "_GetCheckpointFilename"),
    (checkpoint_management, "_prefix_to_checkpoint_path"),
    (checkpoint_utils, "_get_checkpoint_filename"),
)


def patch_readers(_module):
    """Let TensorFlow's readers of checkpoints wait for those of this thread."""
    for module, name in _ASKED:
        setattr(module, name, _waiting(getattr(module, name)))


def _waiting(original):
    @functools.wraps(original)
    def ask(*args, **kwargs):
        writer.wait_for_own()
        return original(*args, **kwargs)

    return ask
