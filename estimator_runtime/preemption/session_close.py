"""Closes sessions that may not come back from it in time, or says what they wait for.

TensorFlow tells every task of a cluster that a session ends, and waits for its answer:
where one is gone for good, for ever. And it waits for the threads of the input: the one
that tunes a tf.data pipeline often misses that it is cancelled, and sleeps on, up to a
minute. A task that was told to stop has its checkpoint by then, and no minute.

A session of one process is not left so: should the close come back while python takes
the process apart, it ends the thread in the middle of TensorFlow, which aborts. See
`run_exit_handlers`.
"""

import atexit
import contextlib
import logging
import threading

_logger = logging.getLogger(__name__)

# With all tasks alive, it takes a few milliseconds.
_TIMEOUT_SECS = 5.0
_STOP_TIMEOUT_SECS = 1.0
_TOLD_AFTER_SECS = 3.0
# The longest sleep of the thread that tunes the input, and some.
_EXIT_TIMEOUT_SECS = 70.0

_WAITS = (
    "closing the session takes long: most likely it waits for TensorFlow's thread that "
    "tunes the input pipeline, up to a minute; a tf.data.Options whose "
    "autotune.enabled is False avoids that"
)

_left: list[threading.Thread] = []  # those that a stopped program has left behind


def closable(session, is_stop=False):
    """Give what to close in place of a session: itself, if no other task has a part.

    Args:
        session: A `tf.compat.v1.Session`.
        is_stop: Whether the program was told to stop, and not a task was lost.
    """
    if not getattr(session, "sess_str", ""):
        return session
    if is_stop:
        return BoundedClose(session, _STOP_TIMEOUT_SECS, is_stop=True)
    return BoundedClose(session)


@contextlib.contextmanager
def told(after_secs=_TOLD_AFTER_SECS):
    """Say what a session waits for whose close in this context takes so long."""
    timer = threading.Timer(after_secs, _logger.warning, args=(_WAITS,))
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # there can be no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:  # nobody is to find a thread more than before
            timer.join(_STOP_TIMEOUT_SECS)


class BoundedClose:
    """A session of a cluster, whose `close` comes back.

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
        if self._is_stop:  # before the wait, which another Ctrl-C may end
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
