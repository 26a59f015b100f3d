"""The error of a checkpoint that its disk does not take: why, and what would do."""

import os
import shutil

import tensorflow as tf

from estimator_runtime.errors import CheckpointError

# What TensorFlow makes of the errors of a disk. Others are of a cluster: a session that
# is lost is made again.
OF_DISKS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.PermissionDeniedError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,
    tf.errors.InternalError,
    tf.errors.DataLossError,
)


def unwritten(prefix, cause, needed_bytes):
    """Give the `CheckpointError` of a checkpoint that cannot be written.

    Args:
        prefix: Its path without suffix.
        cause: What was raised.
        needed_bytes: Size of what was to be written, or None if that is not known.
    """
    reason = getattr(cause, "strerror", None) or str(cause).partition("\n")[0]
    needed = "an unknown number of" if needed_bytes is None else f"{needed_bytes:,}"
    try:
        free = f"{shutil.disk_usage(os.path.dirname(prefix)).free:,} are free"
    except OSError as unknown:
        free = f"nobody knows how many are free: {unknown.strerror}"
    return CheckpointError(
        f"the checkpoint {prefix!r} cannot be written: {reason}; it needs {needed} "
        f"bytes, and {free}. The checkpoints before it are as they were: make room, or "
        "give the permission, and start again to go on from the newest"
    )
