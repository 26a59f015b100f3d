"""Locks on checkpoints and model directories, for readers, writers and trainings.

The kernel holds all of these locks and releases them when their process dies. So no
stale lock ever has to be cleaned up.

* A lease keeps a checkpoint from being deleted while it is being read.
* A claim on a model directory warns when two trainings on one machine save to it. It
  only warns, because a program may do so on purpose.
* A turn lets a process write one checkpoint at a time. While a checkpoint is being
  written, a search for unfinished saves would take it for one of an earlier process.
"""

import contextlib
import contextvars
import errno
import fcntl
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

_logger = logging.getLogger(__name__)
# A busy disk may take seconds to sync the state file that names the newer checkpoint.
_PATIENCE_SECS = 30.0
_LOOK_SECS = 0.05
_scope: contextvars.ContextVar[contextlib.ExitStack | None] = contextvars.ContextVar(
    "estimator_runtime_leases", default=None
)
# Process, device and inode of each claimed folder. The process id is part of it because
# a forked child inherits this set, but not the claims.
_held: set[tuple[int, int, int]] = set()
_lock = threading.Lock()
_NAMED_EVERY_SECS = 30.0


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Hold all leases that `hold` takes in this context until its end.

    Inside another `together`, they are held until the end of the outer one.
    """
    if _scope.get() is not None:
        yield
        return
    with contextlib.ExitStack() as leases:
        token = _scope.set(leases)
        try:
            yield
        finally:
            _scope.reset(token)


def is_together() -> bool:
    """Return whether the caller runs inside a `together` context."""
    return _scope.get() is not None


def hold(prefix: str) -> bool:
    """Hold a lease on a checkpoint until the end of the enclosing `together`.

    Args:
        prefix: Path of the checkpoint, without suffix.

    Returns:
        Whether the checkpoint exists; see `reading`.

    Raises:
        RuntimeError: If there is no enclosing `together`.
    """
    leases = _scope.get()
    if leases is None:
        raise RuntimeError("there is no `together` that would end the lease")
    return hold_in(leases, prefix)


def hold_in(leases: contextlib.ExitStack, prefix: str) -> bool:
    """Hold a lease on a checkpoint until an exit stack is closed.

    Args:
        leases: The exit stack. If the checkpoint does not exist, nothing is added.
        prefix: Path of the checkpoint, without suffix.

    Returns:
        Whether the checkpoint exists; see `reading`.
    """
    with contextlib.ExitStack() as tried:
        is_there = tried.enter_context(reading(prefix))
        if is_there:
            leases.push(tried.pop_all())
        return is_there


def hold_newest(
    latest: Callable[[], str | None],
    hold: Callable[[str], bool] = hold,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> str | None:
    """Hold a lease on the newest checkpoint, and return its path.

    Args:
        latest: Returns the path of the newest checkpoint, or None.
        hold: Holds a lease on a checkpoint, as the function `hold` does.
        clock: Returns a time in seconds.
        pause: Waits for a number of seconds.

    Returns:
        Path of the checkpoint without suffix, or None if there is none.
    """
    deadline = clock() + _PATIENCE_SECS
    prefix = latest()
    # It may be deleted before the lease is taken. Then there is a newer one.
    while prefix is not None and not hold(prefix):
        newer = latest()
        if newer == prefix:
            # It is about to be deleted, but the state file does not name the newer one
            # yet: the process that deletes it is waiting for the disk.
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


@contextlib.contextmanager
def reading(prefix: str) -> Iterator[bool]:
    """Hold a lease, so that a checkpoint is not deleted in this context.

    Args:
        prefix: Path of the checkpoint, without suffix.

    Yields:
        Whether the checkpoint exists. Also True if no lease is possible: on remote
        storage, or on a file system without locks.
    """
    if "://" in prefix:
        yield True
        return
    path = f"{prefix}.index"
    with _opened(path, os.O_RDONLY) as descriptor:
        yield descriptor is not None and _shares(descriptor, path)


@contextlib.contextmanager
def deleting(prefix: str) -> Iterator[bool]:
    """Keep readers away from a checkpoint that is to be deleted in this context.

    Args:
        prefix: Path of the checkpoint, without suffix.

    Yields:
        Whether you may delete it: False while it is being read.
    """
    # NFS grants an exclusive lock only on a file that is open for writing. A process
    # without write permission may still delete the file, if it may change the folder.
    with _opened(f"{prefix}.index", os.O_RDWR, os.O_RDONLY) as descriptor:
        is_free = True
        if descriptor is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_free = False
            except OSError:  # a file system without locks
                pass
        yield is_free


def _shares(descriptor: int, path: str) -> bool:
    """Take a shared lock; return whether the file exists and is not being deleted."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # it is being deleted
        return False
    except OSError:  # a file system without locks
        return True
    # The file may have been deleted after it was opened. Its link count would not show
    # this, because the best checkpoints are kept as further links to the same file.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _opened(path: str, *modes: int) -> Iterator[int | None]:
    """Open a file, and unlock and close it at the end of this context.

    Args:
        path: The file.
        *modes: Flags of `os.open`, tried in this order.

    Yields:
        The descriptor, or None if the file cannot be opened.
    """
    descriptor, opened_by = None, os.getpid()
    for flags in modes:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, flags)
            break
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            # A child that was forked meanwhile shares the descriptor, and would keep
            # the lock unless this process unlocks it. The child must not do that.
            if os.getpid() == opened_by:
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


class ModelDirLock:
    """A claim on a model directory, which a training holds while it runs.

    Attributes:
        release: Unlocks the folder. This also happens when the claim is garbage
            collected.
    """

    def __init__(self, folder: str) -> None:
        """Lock a folder, and log a warning if another process has locked it.

        There is no warning on remote storage, on a file system without locks for
        folders, or about other trainings of this process.

        Args:
            folder: Path of the model directory.
        """
        self.release: Callable[[], object] = lambda: None
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
        self.release = weakref.finalize(self, _unlock, fd, key)


def _unlock(fd: int, key: tuple[int, int, int]) -> None:
    _held.discard(key)
    # A child that was forked meanwhile shares the descriptor. It must neither unlock
    # the folder nor keep it locked.
    if os.getpid() == key[0]:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


@contextlib.contextmanager
def write_lock() -> Iterator[None]:
    """Keep other threads of this process from writing a checkpoint in this context."""
    lock = _lock
    while not lock.acquire(timeout=_NAMED_EVERY_SECS):
        _logger.warning(
            "Another checkpoint of this process is still being written; it is waited "
            "for."
        )
    try:
        yield
    finally:
        lock.release()


def _renew() -> None:
    """Replace the lock in a forked child, where its owner thread does not exist."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)
