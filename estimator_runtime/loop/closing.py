"""Closes sessions of a cluster that has lost a task.

TensorFlow tells every task that a session ends, and waits for its answer: where one is
gone for good, for ever. Other sessions are not for this: should the answer come while
the process ends, python ends the thread in the middle of TensorFlow, which aborts.
"""

import logging
import threading

_logger = logging.getLogger(__name__)

# With all tasks alive, it takes a few milliseconds.
_TIMEOUT_SECS = 5.0


def closable(session):
    """Give what to close in place of a session: itself, if no other task has a part."""
    return BoundedClose(session) if getattr(session, "sess_str", "") else session


class BoundedClose:
    """A session of a cluster, whose `close` comes back.

    Args:
        session: A `tf.compat.v1.Session`.
        timeout_secs: After which it is left to close alone.
    """

    def __init__(self, session, timeout_secs=_TIMEOUT_SECS):
        self._session, self._timeout_secs = session, timeout_secs
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
        if thread.is_alive():
            _logger.warning(
                "a task of the cluster does not answer that the session is closed; "
                "going on without its answer after %g s",
                self._timeout_secs,
            )
        elif self._error is not None:
            raise self._error

    def _close(self):
        try:
            self._session.close()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
