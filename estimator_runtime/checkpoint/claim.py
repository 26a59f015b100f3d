"""Says it where two trainings save to one model directory side by side.

Each goes on from what the other has saved, overwrites it and deletes it. The folder
itself is locked: no file is left in it, and the kernel lets go of the lock of a process
that dies. It only warns, as a program may know what it does.
"""

import contextlib
import errno
import fcntl
import logging
import os

_logger = logging.getLogger(__name__)
_held: set[tuple[int, int]] = set()  # device and inode of what this process has locked


class Claim:
    """What a training holds of its model directory while it trains there."""

    def __init__(self, folder):
        """Lock a folder, and warn if another process has.

        Args:
            folder: Its path. Nothing is said of remote storage, of a file system that
                has no locks for folders, and of other trainings of this process.
        """
        self._fd = -1
        self._key = None
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        stat = os.fstat(fd)
        key = stat.st_dev, stat.st_ino
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno == errno.EWOULDBLOCK and key not in _held:
                _logger.warning(
                    "another process trains in %r too, or something that it has "
                    "started is left: each of the two goes on from what the other has "
                    "saved, and deletes it; end one, or give it a model_dir of its own",
                    folder,
                )
            return
        self._fd, self._key = fd, key
        _held.add(key)

    def release(self):
        """Let go of the folder; it may be called again."""
        if self._fd == -1:
            return
        _held.discard(self._key)
        # A child that was forked meanwhile has the descriptor too, and keeps it.
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
        self._fd = -1
