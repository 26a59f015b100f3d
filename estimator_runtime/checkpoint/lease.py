"""Who reads a checkpoint keeps it from being deleted meanwhile.

A reader locks the index, shared with other readers; whoever would delete the checkpoint
needs the lock for itself. The kernel lets go of the lock of a process that dies, so
nothing is ever left to be cleaned up.
"""

import contextlib
import contextvars
import fcntl
import logging
import os
import time

_logger = logging.getLogger(__name__)
# A busy disk may take seconds to sync the state file, which names the newer one.
_PATIENCE_SECS = 30.0
_LOOK_SECS = 0.05
_scope: contextvars.ContextVar[contextlib.ExitStack | None] = contextvars.ContextVar(
    "estimator_runtime_leases", default=None
)


@contextlib.contextmanager
def together():
    """Let what `hold` takes in this context stay until its end; inside, they add up."""
    if _scope.get() is not None:
        yield
        return
    with contextlib.ExitStack() as leases:
        token = _scope.set(leases)
        try:
            yield
        finally:
            _scope.reset(token)


def is_together():
    """Tell whether there is a `together` around this."""
    return _scope.get() is not None


def hold(prefix):
    """Keep a checkpoint until the end of the `together` around this.

    Args:
        prefix: Its path without suffix.

    Returns:
        Whether it is there; see `reading`.
    """
    leases = _scope.get()
    if leases is None:
        raise RuntimeError("there is no `together` that would end the lease")
    return hold_in(leases, prefix)


def hold_in(leases, prefix):
    """Keep a checkpoint until the end of `leases`, a `contextlib.ExitStack`.

    Args:
        leases: It takes nothing where the checkpoint is not there.
        prefix: Its path without suffix.

    Returns:
        Whether it is there; see `reading`.
    """
    with contextlib.ExitStack() as tried:
        is_there = tried.enter_context(reading(prefix))
        if is_there:
            leases.push(tried.pop_all())
        return is_there


def hold_newest(latest, hold=hold, clock=time.monotonic, pause=time.sleep):
    """Keep the newest checkpoint; give its path, or None.

    Args:
        latest: Gives its path, or None.
        hold: Keeps one, as `hold` does.
        clock: Gives seconds.
        pause: Waits, of (seconds).
    """
    deadline = clock() + _PATIENCE_SECS
    prefix = latest()
    # Between its name and the lease it may be deleted: then there is a newer one.
    while prefix is not None and not hold(prefix):
        newer = latest()
        if newer == prefix:
            # It is about to be deleted, and the newer one not named yet: whoever
            # deletes it waits for the disk in between.
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
def reading(prefix):
    """Keep a checkpoint from being deleted in this context.

    Args:
        prefix: Its path without suffix.

    Yields:
        Whether it is there. True also where nobody can keep it: on remote storage, or
        on a file system without locks.
    """
    if "://" in prefix:
        yield True
        return
    path = f"{prefix}.index"
    with _opened(path, os.O_RDONLY) as descriptor:
        yield descriptor is not None and _shares(descriptor, path)


@contextlib.contextmanager
def deleting(prefix):
    """Keep readers from a checkpoint that is to be deleted in this context.

    Args:
        prefix: Its path without suffix.

    Yields:
        Whether it may be deleted: False if somebody reads it.
    """
    # NFS locks a file for one only if that one may write to it. Who may not can delete
    # it nevertheless, where the folder is theirs.
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


def _shares(descriptor, path):
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # it is being deleted
        return False
    except OSError:  # a file system without locks
        return True
    # It may have been deleted between the two calls. Links to the file, as there are of
    # the best checkpoints, stay then: so it is not their number that tells.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _opened(path, *ways):
    descriptor, opened_by = None, os.getpid()
    for flags in ways:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, flags)
            break
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            # A child that was forked meanwhile has the file open too, and with it the
            # lock, unless that is let go of here; the child's end ends none of ours.
            if os.getpid() == opened_by:
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
