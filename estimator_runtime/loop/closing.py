"""Closes sessions that may not come back from it in time, or says what they wait for.

TensorFlow tells every task that a session ends, and waits for its answer: where one is
gone for good, for ever. And it waits for the threads of the input: the one that tunes a
tf.data pipeline often misses that it is cancelled, and sleeps on, up to a minute. A
program that was told to stop has its checkpoint by then, and no minute.

A training that has come to its end waits for that thread: the program may train on,
and what its input does when it is closed belongs to it. Nor is a process taken apart
while a session is still being closed: should the answer come then, python ends the
thread in the middle of TensorFlow, which aborts. See `run_exit_handlers`.
"""

import atexit
import contextlib
import logging
import threading

from estimator_runtime.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)

# With all tasks alive, it takes a few milliseconds.
_TIMEOUT_SECS = 5.0
_STOP_TIMEOUT_SECS = 1.0
_TOLD_AFTER_SECS = 3.0
# The longest sleep of the thread that tunes the input, and some.
_EXIT_TIMEOUT_SECS = 70.0

_left: list[threading.Thread] = []  # those that a stopped program has left behind


def closable(session, is_stop=False):
    """Give what to close in place of a session: itself, if it is not to be left.

    Args:
        session: A `tf.compat.v1.Session`.
        is_stop: Whether the program was told to stop, and not a task was lost.
    """
    if is_stop:
        return BoundedClose(session, _STOP_TIMEOUT_SECS, is_stop=True)
    # Where no other task has a part, none can be missing.
    return BoundedClose(session) if getattr(session, "sess_str", "") else session


@contextlib.contextmanager
def told(after_secs=_TOLD_AFTER_SECS):
    """Say what a session waits for whose close in this context takes so long."""
    timer = threading.Timer(
        after_secs,
        TRAINING_LOG.info,
        args=(
            "closing the session waits for TensorFlow's thread that tunes the input "
            "pipeline, up to a minute; a tf.data.Options whose autotune.enabled is "
            "False avoids that",
        ),
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class BoundedClose:
    """A session whose `close` comes back.

    Args:
        session: A `tf.compat.v1.Session`.
        timeout_secs: After which it is left to close alone.
        is_stop: As that of `closable`.
    """

    def __init__(self, session, timeout_secs=_TIMEOUT_SECS, is_stop=False):
        self._session, self._timeout_secs = session, timeout_secs
        self._is_stop = is_stop
        self._error = None

    def close(self):
        """Close it, or leave that to a thread that dies with the process.

        Raises:
            tf.errors.OpError: As the session's own `close`, if that was in time.
        """
        thread = threading.Thread(
            target=self._close, name="estimator_runtime close", daemon=True
        )
        thread.start()
        thread.join(self._timeout_secs)
        if not thread.is_alive():
            if self._error is not None:
                raise self._error
        elif self._is_stop:
            _left.append(thread)
            atexit.register(_wait_for, thread)
        else:
            _logger.warning(
                "a task of the cluster does not answer that the session is closed; "
                "going on without its answer after %g s",
                self._timeout_secs,
            )

    def _close(self):
        try:
            self._session.close()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error


def are_left():
    """Tell whether a session that a stopped program has left is still being closed."""
    return any(thread.is_alive() for thread in _left)


def run_exit_handlers():
    """Do what python does at an exit before it takes itself apart.

    The process has to end right after that, by itself.
    """
    _left.clear()  # `_wait_for` waits for them no more
    threading._shutdown()  # type: ignore[attr-defined] # waits for the other threads
    atexit._run_exitfuncs()


def _wait_for(thread):
    """Let a close come back before python ends, where it takes itself apart."""
    if thread in _left:
        thread.join(_EXIT_TIMEOUT_SECS)
