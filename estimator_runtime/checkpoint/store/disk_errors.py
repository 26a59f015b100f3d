"""The errors of a disk that a checkpoint cannot be written to, and their remedies."""

import contextlib
import glob
import os
import resource
from collections.abc import Iterator

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
    prefix: str, cause: BaseException, needed_bytes: int | None
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
    needed = "an unknown number of" if needed_bytes is None else f"{needed_bytes:,}"
    return CheckpointError(
        f"the checkpoint {prefix!r} cannot be written: {reason}; it needs {needed} "
        f"bytes, and {_room(folder, needed_bytes)}. Earlier checkpoints are unchanged: "
        "make room, or grant the permission, and start again to go on from the newest"
    )


def _room(folder: str, needed_bytes: int | None) -> str:
    """Return what there is room for in a folder, or the limit that leaves none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= limit <= (needed_bytes or limit):  # no limit is -1
        return f"a file of this process may have {limit:,} (see ulimit -f)"
    try:
        disk = os.statvfs(folder)
    except OSError as unknown:
        return f"it is unknown how many are free: {unknown.strerror}"
    if disk.f_files and not disk.f_favail:
        return "no more files fit on the disk, however small (see df -i)"
    return f"{disk.f_bavail * disk.f_frsize:,} are free"


@contextlib.contextmanager
def graph_written(folder: str) -> Iterator[None]:
    """Raise a `CheckpointError` where TensorFlow cannot write `graph.pbtxt`.

    The partial file is deleted.
    """
    try:
        yield
    except OF_DISKS as error:
        # Other errors may be those of the session, which is made again.
        unfinished = os.path.join(folder, "graph.pbtxt.tmp")
        if unfinished not in str(error):
            raise
        for path in glob.glob(f"{glob.escape(unfinished)}*"):
            with contextlib.suppress(OSError):
                os.remove(path)
        raise CheckpointError(
            f"the graph cannot be written to {folder!r}: {_reason(error)}. Existing "
            "checkpoints are unchanged: make room, or grant the permission, and start "
            "again"
        ) from error


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
