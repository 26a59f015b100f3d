"""Close sessions within a bounded time, and log what a slow close waits for.

TensorFlow tells every task of a cluster that a session ends, and waits for the answers:
for ever, if one of the tasks is gone for good. It also waits for the threads of the
input pipeline. The one that tunes a tf.data pipeline often misses its cancellation and
sleeps on, for up to a minute. A task that was told to stop has saved its checkpoint by
then, and has no minute left.

A session of a single process is never abandoned like that. If the close returned while
Python finalizes the interpreter, Python would end that thread in the middle of
TensorFlow, which aborts. See `run_exit_handlers`.
"""

import atexit
import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

_logger = logging.getLogger(__name__)

# With all tasks alive, it takes a few milliseconds.
_TIMEOUT_SECS = 5.0
_STOP_TIMEOUT_SECS = 1.0
_TOLD_AFTER_SECS = 3.0
# A little more than the longest sleep of the thread that tunes the input pipeline.
_EXIT_TIMEOUT_SECS = 70.0

_WAITS = (
    "closing the session takes long: most likely it waits for TensorFlow's thread that "
    "tunes the input pipeline, up to a minute; to avoid that, give the dataset a "
    "tf.data.Options with autotune.enabled = False, by dataset.with_options(options)"
)

_left: list[threading.Thread] = []  # closes that a stopped program has left behind


def closable(session: Any, is_stop: bool = False) -> Any:
    """Return the object to close in place of a session.

    That is the session itself, if no other task takes part in it.

    Args:
        session: A `tf.compat.v1.Session`.
        is_stop: Whether it is closed because the program was told to stop, and not
            because a task was lost.
    """
    if not getattr(session, "sess_str", ""):
        return session
    if is_stop:
        return BoundedClose(session, _STOP_TIMEOUT_SECS, is_stop=True)
    return BoundedClose(session)


@contextlib.contextmanager
def told(after_secs: float = _TOLD_AFTER_SECS) -> Iterator[None]:
    """Log what a session waits for, if its close in this context takes so long."""
    timer = threading.Timer(after_secs, _logger.warning, args=(_WAITS,))
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no more threads can be started
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:  # leave no extra thread behind, not even briefly
            timer.join(_STOP_TIMEOUT_SECS)


class BoundedClose:
    """A session of a cluster whose `close` returns within a bounded time.

    Args:
        session: A `tf.compat.v1.Session`.
        timeout_secs: Time after which `close` returns and the session closes alone.
        is_stop: As in `closable`.
    """

    def __init__(
        self, session: Any, timeout_secs: float = _TIMEOUT_SECS, is_stop: bool = False
    ) -> None:
        self._session, self._timeout_secs = session, timeout_secs
        self._is_stop = is_stop
        self._error: Exception | None = None

    def close(self) -> None:
        """Close the session, or leave that to a daemon thread if it takes too long.

        Raises:
            tf.errors.OpError: As the session's own `close`, if that was in time.
        """
        thread = threading.Thread(
            target=self._close, name="estimator_runtime close", daemon=True
        )
        thread.start()
        if self._is_stop:  # before the wait, which another Ctrl-C may interrupt
            _left.append(thread)
            atexit.register(_wait_for, thread)
        thread.join(self._timeout_secs)
        if not thread.is_alive():
            if self._error is not None:
                raise self._error
        elif not self._is_stop:
            _logger.warning(
                "a task of the cluster does not answer that the session is closed; "
                "going on without its answer after %g s",
                self._timeout_secs,
            )

    def _close(self) -> None:
        try:
            self._session.close()
        except Exception as error:  # noqa: BLE001 - `close` raises it
            self._error = error


def are_left() -> bool:
    """Return whether a session left by a stopped program is still being closed."""
    return any(thread.is_alive() for thread in _left)


def run_exit_handlers() -> None:
    """Run what Python runs at an exit before it finalizes the interpreter.

    The caller has to end the process right after that, without Python's own exit.
    """
    _left.clear()  # so that `_wait_for` does not wait for them any more
    threading._shutdown()  # type: ignore[attr-defined] # waits for the other threads
    atexit._run_exitfuncs()


def _wait_for(thread: threading.Thread) -> None:
    """Wait for a close left behind, before Python finalizes the interpreter."""
    if thread in _left:
        thread.join(_EXIT_TIMEOUT_SECS)
