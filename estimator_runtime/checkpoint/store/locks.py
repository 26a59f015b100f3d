"""Locks on checkpoints and model directories, for readers, writers and trainings.

The kernel holds all of these locks and releases them when their process dies. So no
stale lock ever has to be cleaned up.

* A lease keeps a checkpoint from being deleted while it is being read.
* A lock on a model directory warns when two trainings on one machine save to it. It
  only warns, because a program may do so on purpose.
* The write lock lets a process write one checkpoint at a time. While a checkpoint is
  being written, a search for unfinished saves would take it for one of an earlier
  process.
* A hidden folder is locked while a checkpoint is written to it. So other processes,
  even those in other containers, know that its writer is alive.
"""

import contextlib
import contextvars
import fcntl
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

from estimator_runtime.config.paths import is_local

_logger = logging.getLogger(__name__)
# A busy disk may take seconds to sync the state file that names the newer checkpoint.
_PATIENCE_SECS = 30.0
_CHECK_SECS = 0.05
_scope: contextvars.ContextVar[contextlib.ExitStack | None] = contextvars.ContextVar(
    "estimator_runtime_leases", default=None
)
# Process, device and inode of each locked model directory. The process id is part of it
# because a forked child inherits this set, but not the locks.
_model_dirs: set[tuple[int, int, int]] = set()
# Path to descriptor of the hidden folders that this process has locked.
_hidden_folders: dict[str, int] = {}
_lock = threading.Lock()
_NAMED_EVERY_SECS = 30.0
_FOLDER_ATTEMPTS, _FOLDER_PAUSE_SECS = 100, 0.01  # a check locks it only briefly


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


def hold(prefix: str, leases: contextlib.ExitStack | None = None) -> bool:
    """Hold a lease on a checkpoint until the end of the enclosing `together`.

    Args:
        prefix: Path of the checkpoint, without suffix.
        leases: Hold the lease until this exit stack is closed instead.

    Returns:
        Whether the checkpoint exists; see `reading`. If it does not, nothing is held.

    Raises:
        RuntimeError: If there is neither an enclosing `together` nor `leases`.
    """
    leases = _scope.get() if leases is None else leases
    if leases is None:
        raise RuntimeError("there is no `together` that would end the lease")
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
                    "Reading %s although another process has been about to delete it "
                    "for %g s",
                    prefix,
                    _PATIENCE_SECS,
                )
                break
            pause(_CHECK_SECS)
        prefix = newer
    return prefix


@contextlib.contextmanager
def reading(prefix: str) -> Iterator[bool]:
    """Hold a lease, so that a checkpoint is not deleted in this context.

    Yields:
        Whether the checkpoint exists. Also True if no lease is possible: on remote
        storage, or on a file system without locks.
    """
    if not is_local(prefix):
        yield True
        return
    path = f"{prefix}.index"
    with _opened(path, os.O_RDONLY) as descriptor:
        yield descriptor is not None and _shares(descriptor, path)


@contextlib.contextmanager
def deleting(prefix: str) -> Iterator[bool]:
    """Keep readers away from a checkpoint that is to be deleted in this context.

    Yields:
        Whether you may delete it: False while it is being read.
    """
    # NFS grants an exclusive lock only on a file that is open for writing. A process
    # without write permission may still delete the file, if it may change the folder.
    with _opened(f"{prefix}.index", os.O_RDWR, os.O_RDONLY) as descriptor:
        yield descriptor is None or _try_lock(descriptor, fcntl.LOCK_EX) is not False


def _try_lock(descriptor: int, kind: int) -> bool | None:
    """Return whether a lock was granted; None on a file system without locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _shares(descriptor: int, path: str) -> bool:
    """Take a shared lock; return whether the file exists and is not being deleted."""
    is_locked = _try_lock(descriptor, fcntl.LOCK_SH)
    if not is_locked:
        return is_locked is None
    # The file may have been deleted after it was opened. Its link count would not show
    # this, because the best checkpoints are kept as further links to the same file.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _opened(path: str, *modes: int) -> Iterator[int | None]:
    """Open a file with the first of some flags that works, and unlock it at the end.

    Yields:
        The descriptor, or None if the file cannot be opened.
    """
    descriptor, opened_by = None, os.getpid()
    for flags in modes:
        with contextlib.suppress(OSError):
            # Without O_NONBLOCK, a named pipe would wait for a writer.
            descriptor = os.open(path, flags | os.O_NONBLOCK)
            break
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            _unlock(descriptor, opened_by)


def _unlock(descriptor: int, locked_by: int) -> None:
    """Unlock and close a file that the process `locked_by` has locked."""
    # A child that was forked meanwhile shares the descriptor, and would keep the lock
    # unless this process unlocks it. The child must not do that.
    if os.getpid() == locked_by:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


class ModelDirLock:
    """A lock on a model directory, which a training holds while it runs.

    If another process holds it, a warning is logged. There is no warning on remote
    storage, on a file system without locks for folders, or about other trainings of
    this process.

    Args:
        folder: Path of the model directory.

    Attributes:
        release: Unlocks the folder. This also happens when the object is garbage
            collected.
    """

    def __init__(self, folder: str) -> None:
        self.release: Callable[[], object] = lambda: None
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        stat = os.fstat(descriptor)
        key = os.getpid(), stat.st_dev, stat.st_ino
        is_locked = _try_lock(descriptor, fcntl.LOCK_EX)
        if is_locked:
            _model_dirs.add(key)
            self.release = weakref.finalize(self, _release, descriptor, key)
            return
        os.close(descriptor)
        if is_locked is False and key not in _model_dirs:
            _logger.warning(
                "another process trains in %r too, or has locked it: each goes on from "
                "what the other saves, and deletes it; end one, or give it its own "
                "model_dir",
                folder,
            )


def _release(descriptor: int, key: tuple[int, int, int]) -> None:
    _model_dirs.discard(key)
    _unlock(descriptor, locked_by=key[0])


@contextlib.contextmanager
def write_lock() -> Iterator[None]:
    """Keep other threads of this process from writing a checkpoint in this context."""
    lock = _lock
    while not lock.acquire(timeout=_NAMED_EVERY_SECS):
        _logger.warning(
            "Waiting for another checkpoint write in this process to finish."
        )
    try:
        yield
    finally:
        lock.release()


def lock_folder(folder: str) -> None:
    """Lock a new hidden folder until `unlock_folder` or the end of this process.

    If the file system has no locks, other processes go by the time of the last change.

    Raises:
        OSError: If the folder does not exist.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    _hidden_folders[os.path.realpath(folder)] = descriptor
    for _ in range(_FOLDER_ATTEMPTS):
        if _try_lock(descriptor, fcntl.LOCK_EX) is not False:
            return
        time.sleep(_FOLDER_PAUSE_SECS)


def unlock_folder(folder: str) -> None:
    """Unlock a folder if this process has locked it."""
    descriptor = _hidden_folders.pop(os.path.realpath(folder), None)
    if descriptor is not None:
        os.close(descriptor)


def is_locked(path: str) -> bool | None:
    """Return whether a file or folder is locked; None if that is unknown."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        is_free = _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)
    return None if is_free is None else not is_free


def _after_fork() -> None:
    """Replace the locks in a forked child, which has none of its parent's threads."""
    global _lock
    _lock = threading.Lock()
    # An open descriptor would keep a folder locked after the parent has died.
    for descriptor in _hidden_folders.values():
        os.close(descriptor)
    _hidden_folders.clear()


os.register_at_fork(after_in_child=_after_fork)
