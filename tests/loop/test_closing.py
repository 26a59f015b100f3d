"""Sessions of a cluster are closed within a bounded time."""

import logging
import threading

import pytest
import tensorflow as tf

from estimator_runtime.loop.closing import BoundedClose, closable


class Session:
    """A session whose close does what it is told."""

    def __init__(self, close, target=b"grpc://h:1"):
        self.close, self.sess_str = close, target


def test_a_close_that_never_comes_back_is_left_alone_and_the_log_says_so(caplog):
    never = threading.Event()
    BoundedClose(Session(never.wait), timeout_secs=0.05).close()
    never.set()
    assert caplog.record_tuples == [
        (
            "estimator_runtime.loop.closing",
            logging.WARNING,
            "a task of the cluster does not answer that the session is closed; going on "
            "without its answer after 0.05 s",
        )
    ]


def test_an_error_of_a_close_is_raised():
    def close():
        raise tf.errors.UnavailableError(None, None, "gone")

    with pytest.raises(tf.errors.UnavailableError, match="gone"):
        closable(Session(close)).close()


def test_a_local_session_is_closed_as_it_is():
    with tf.Graph().as_default():
        session = tf.compat.v1.Session()
    assert closable(session) is session
    session.close()


def test_a_session_on_a_server_is_closed_for_good():
    server = tf.compat.v1.train.Server.create_local_server()
    with tf.Graph().as_default():
        session = tf.compat.v1.Session(server.target)
        closable(session).close()
        with pytest.raises(RuntimeError, match="closed"):
            session.run(tf.constant(1))
