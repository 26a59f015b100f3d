"""Says it where two trainings save to one model directory side by side.

Each goes on from what the other has saved, overwrites it and deletes it. The folder
itself is locked: no file is left in it, and the kernel lets go of the lock of a process
that dies. On NFS it is seen on the same machine only. It only warns, as a program may
know what it does.
"""

import contextlib
import errno
import fcntl
import logging
import os
import weakref

_logger = logging.getLogger(__name__)
# Process, device and inode of what is locked: a forked child has locked nothing.
_held: set[tuple[int, int, int]] = set()


class Claim:
    """What a training holds of its model directory while it trains there."""

    def __init__(self, folder):
        """Lock a folder, and warn if another process has.

        Args:
            folder: Its path. Nothing is said of remote storage, of a file system that
                has no locks for folders, and of other trainings of this process.
        """
        self.release = lambda: None
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        stat = os.fstat(fd)
        key = os.getpid(), stat.st_dev, stat.st_ino
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno == errno.EWOULDBLOCK and key not in _held:
                _logger.warning(
                    "another process trains in %r too, or has locked it: two trainings "
                    "go on from what the other has saved, and delete it; end one, or "
                    "give it a model_dir of its own",
                    folder,
                )
            return
        _held.add(key)
        # Lets go of the folder: when it is called, or when nobody knows the claim.
        self.release = weakref.finalize(self, _unlock, fd, key)


def _unlock(fd, key):
    _held.discard(key)
    # A child that was forked meanwhile has the descriptor too: it must not unlock it,
    # nor keep it locked.
    if os.getpid() == key[0]:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
