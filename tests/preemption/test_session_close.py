"""Sessions of a cluster are closed within a bounded time."""

import logging
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

from estimator_runtime.preemption import session_close
from estimator_runtime.preemption.session_close import BoundedClose, closable


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
            "estimator_runtime.preemption.session_close",
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


def test_a_close_that_takes_its_time_says_what_it_waits_for(caplog):
    with session_close.told(after_secs=0.01):
        deadline = time.monotonic() + 30
        while not caplog.messages:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert "thread that tunes the input pipeline, up to a minute" in caplog.messages[0]


def test_a_close_goes_on_where_there_can_be_no_more_threads(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", start)
    with session_close.told():
        pass


def test_a_close_that_is_quick_leaves_no_thread_that_would_say_so():
    before = set(threading.enumerate())
    for _ in range(20):
        with session_close.told(after_secs=600):
            assert set(threading.enumerate()) - before
        assert not set(threading.enumerate()) - before


def test_a_session_on_a_server_is_closed_for_good():
    server = tf.compat.v1.train.Server.create_local_server()
    with tf.Graph().as_default():
        session = tf.compat.v1.Session(server.target)
        closable(session).close()
        with pytest.raises(RuntimeError, match="closed"):
            session.run(tf.constant(1))


STOPPED = """
import atexit, os, signal, sys, threading
import tensorflow as tf
import estimator_runtime as er

atexit.register(print, "an exit handler")
v1 = tf.compat.v1
v1.disable_eager_execution()
server = v1.train.Server.create_local_server()
notes = open("notes", "w")
step = v1.train.get_or_create_global_step().assign_add(1)
close, is_stopping = v1.Session.close, threading.Event()


def close_late(session):
    # As TensorFlow's, while a thread of the input sleeps; but for ever.
    threading.Event().wait() if is_stopping.is_set() else close(session)


v1.Session.close = close_late
with er.MonitoredTrainingSession(server.target, checkpoint_dir="model") as session:
    while not session.should_stop():
        session.run(step)
        notes.write("a note")
        is_stopping.set()
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
print("not reached")
"""


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", -2)])
def test_a_session_that_a_stopped_program_leaves_does_not_hold_up_its_end(
    tmp_path, name, status
):
    (tmp_path / "program.py").write_text(STOPPED)
    done = subprocess.run(
        [sys.executable, "-m", "estimator_runtime", "run", "program.py", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert done.stdout == "an exit handler\n"
    assert (tmp_path / "notes").read_text() == "a note"
    assert f"stopped by {name} at step 1; it is saved in " in done.stderr


def test_a_stopped_program_waits_no_longer_than_a_second_for_its_session():
    never = threading.Event()
    closable(Session(never.wait), is_stop=True).close()
    assert session_close.are_left()
    never.set()
    for thread in session_close._left:
        thread.join(10)
    assert not session_close.are_left()
