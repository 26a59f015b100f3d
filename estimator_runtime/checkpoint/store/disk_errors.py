"""The errors of a disk that a checkpoint cannot be written to, and their remedies."""

import contextlib
import os
import shutil

import tensorflow as tf

from estimator_runtime.config.paths import is_local
from estimator_runtime.errors import CheckpointError

# TensorFlow's errors for a disk. Its other errors come from a cluster, where a lost
# session is created again.
OF_DISKS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.PermissionDeniedError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,
    tf.errors.InternalError,
    tf.errors.DataLossError,
    tf.errors.OutOfRangeError,  # a limit of file sizes; a save reads no data that ends
)


def disk_error(
    prefix: str, cause: BaseException, needed_bytes: int | None = None
) -> CheckpointError:
    """Return the `CheckpointError` for a checkpoint that cannot be written.

    Args:
        prefix: Path of the checkpoint, without suffix.
        cause: The exception of the write.
        needed_bytes: Size of the checkpoint, in bytes, or None if it is not known.
    """
    folder = os.path.dirname(prefix)
    if is_local(folder) and not os.path.isdir(folder):
        return CheckpointError(
            f"the checkpoint {prefix!r} cannot be written: the folder {folder!r} was "
            "deleted during training, along with its checkpoints. Restore it and start "
            "again to go on from the newest, or start again without it to train "
            "from the start"
        )
    reason = getattr(cause, "strerror", None) or _reason(cause)
    sizes = [] if needed_bytes is None else [f"it needs {needed_bytes:,} bytes"]
    with contextlib.suppress(OSError):
        sizes.append(f"{shutil.disk_usage(folder).free:,} bytes are free")
    return CheckpointError(
        f"the checkpoint {prefix!r} cannot be written: "
        f"{'; '.join([reason, *sizes])}. Earlier checkpoints are unchanged: make room "
        "(see also df -i and ulimit -f), or grant the permission, and start again to "
        "go on from the newest"
    )


def _reason(cause: BaseException) -> str:
    """Return the reason that the disk gave, such as "No space left on device"."""
    text = str(cause)
    if text.startswith("Graph execution error:"):
        # The error of an op on another task: the reason follows the place where the op
        # was made, and precedes the op's name.
        line = text.partition("\n\t [[")[0].rpartition("\n")[2]
    else:
        line = text.partition("\n")[0]
    return line.rpartition("; ")[2]
