"""One checkpoint at a time is written in a process, whoever writes it.

Two savers may have one folder. And what this process has begun to write looks, to a
search for what is left half done, like what an earlier life of it has left.
"""

import contextlib
import logging
import os
import threading

_logger = logging.getLogger(__name__)
_lock = threading.Lock()
_NAMED_EVERY_SECS = 30.0


@contextlib.contextmanager
def turn():
    """Let nobody else in this process write a checkpoint in this context."""
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


def _renew():
    """A thread of the parent that holds it is not in a forked child."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)
