"""A training that is told to end stops at a step, is saved, and ends the program."""

import ctypes
import gc
import os
import signal
import threading
import time

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.signals import request

train = tf.compat.v1.train
EACH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
# Longer than the time within which a signal that comes twice is one request.
LATER_SECS = 0.12


@pytest.fixture(autouse=True)
def _signals():
    """Set signals to what they do in a shell's foreground, and restore them."""
    request._request.end_all()  # of sessions that another test has left open
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    usual_hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    signal.signal(signal.SIGHUP, usual_hangup)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    signal.signal(signal.SIGINT, usual)
    assert request.requested() is None


@pytest.fixture
def graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def add(graph):
    return train.get_or_create_global_step().assign_add(1).op


def open_session(folder):
    return er.MonitoredTrainingSession(
        checkpoint_dir=str(folder), save_checkpoint_steps=1000
    )


def saved_step(folder):
    return int(tf.train.load_checkpoint(str(folder)).get_tensor("global_step"))


class Told:
    """What ended the program, as an exit status in a shell."""

    def __enter__(self):
        return self

    def __exit__(self, _type, error, _traceback):
        self.status = None
        if isinstance(error, SystemExit):
            self.status = error.code
        elif isinstance(error, KeyboardInterrupt):
            self.status = 130
        return self.status is not None


@EACH
def test_a_signal_ends_the_program_after_the_step_is_saved(tmp_path, add, number):
    with Told() as told, open_session(tmp_path) as session:
        for _ in range(3):
            session.run(add)
        signal.raise_signal(number)
        assert session.should_stop()
    assert (told.status, saved_step(tmp_path)) == (128 + number, 3)


@EACH
def test_a_loop_that_never_asks_is_ended_by_its_next_step(tmp_path, add, number):
    with Told() as told:
        session = open_session(tmp_path)
        for step in range(10):
            if step == 4:
                signal.raise_signal(number)
            session.run(add)
    assert (told.status, saved_step(tmp_path)) == (128 + number, 4)
    session.close()  # as in a `finally` of the program: nothing more happens


def test_a_signal_before_the_first_step_saves_what_was_restored(tmp_path, add):
    with open_session(tmp_path) as session:
        session.run(add)
    with Told() as told, open_session(tmp_path) as session:
        signal.raise_signal(signal.SIGTERM)
        while not session.should_stop():
            session.run(add)
    assert (told.status, saved_step(tmp_path)) == (143, 1)


def test_a_session_inside_another_ends_both_and_both_are_saved(tmp_path, add):
    with Told() as told, open_session(tmp_path / "outer") as outer:
        outer.run(add)
        with tf.Graph().as_default():
            inner_add = train.get_or_create_global_step().assign_add(1).op
            with open_session(tmp_path / "inner") as inner:
                inner.run(inner_add)
                inner.run(inner_add)
                signal.raise_signal(signal.SIGTERM)
                inner.run(inner_add)
    steps = saved_step(tmp_path / "outer"), saved_step(tmp_path / "inner")
    assert (told.status, *steps) == (143, 1, 2)


def test_the_end_of_the_data_at_the_same_step_changes_nothing(tmp_path, graph):
    data = tf.data.Dataset.range(3)
    value = tf.compat.v1.data.make_one_shot_iterator(data).get_next()
    with tf.control_dependencies([value]):
        add = train.get_or_create_global_step().assign_add(1).op
    with Told() as told, open_session(tmp_path) as session:
        while not session.should_stop():
            session.run(add)
            if session.run(train.get_global_step()) == 3:
                signal.raise_signal(signal.SIGTERM)
    assert (told.status, saved_step(tmp_path)) == (143, 3)


def test_an_error_of_the_program_comes_first_and_the_next_training_ends(tmp_path, add):
    with pytest.raises(KeyError, match="label"), open_session(tmp_path) as session:
        session.run(add)
        signal.raise_signal(signal.SIGTERM)
        raise KeyError("label")
    with Told() as told, open_session(tmp_path) as session:
        while not session.should_stop():
            session.run(add)
    assert (told.status, saved_step(tmp_path)) == (143, 0)


def test_ctrl_c_is_a_keyboard_interrupt_that_names_the_checkpoint(tmp_path, add):
    with pytest.raises(KeyboardInterrupt) as told, open_session(tmp_path) as session:
        session.run(add)
        signal.raise_signal(signal.SIGINT)
    saved = tmp_path / "model.ckpt-1"
    assert str(told.value) == f"stopped by SIGINT at step 1; it is saved in {saved}"


def test_a_stop_without_a_checkpoint_says_that_there_is_none(add):
    with pytest.raises(KeyboardInterrupt) as told, er.MonitoredTrainingSession() as s:
        s.run(add)
        signal.raise_signal(signal.SIGINT)
    assert request.summary(told.value) == (
        "stopped by SIGINT after a step; no checkpoint of it was saved here",
        "run the same command again to go on from the newest checkpoint, if there is "
        "one",
    )


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU])
def test_the_notice_of_a_batch_system_saves_the_step(tmp_path, add, number):
    with pytest.raises(SystemExit) as told, open_session(tmp_path) as session:
        session.run(add)
        signal.raise_signal(number)
    assert (told.value.code, saved_step(tmp_path)) == (128 + number, 1)
    assert request.summary(told.value) == (
        f"stopped by {signal.Signals(number).name} at step 1; it is saved in "
        f"{tmp_path}/model.ckpt-1",
        "run the same command again to go on from there",
    )


def test_a_second_ctrl_c_interrupts_at_once(tmp_path, add):
    with open_session(tmp_path) as session:
        session.run(add)
    with Told() as told, open_session(tmp_path) as session:
        session.run(add)
        signal.raise_signal(signal.SIGINT)
        time.sleep(LATER_SECS)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("went on")
    assert (told.status, saved_step(tmp_path)) == (130, 1)


@pytest.mark.parametrize("own", [lambda *_: None, signal.SIG_IGN])
@EACH
def test_a_handler_of_the_programs_own_is_kept(tmp_path, add, own, number):
    usual = signal.signal(number, own)
    try:
        with open_session(tmp_path) as session:
            assert signal.getsignal(number) is own
            for _ in range(2):
                signal.raise_signal(number)
            assert not session.should_stop()
            session.run(add)
        assert signal.getsignal(number) is own
    finally:
        signal.signal(number, usual)
    assert saved_step(tmp_path) == 1


def test_a_handler_that_is_set_in_the_middle_of_a_training_is_kept(tmp_path, add):
    with open_session(tmp_path) as session:
        session.run(add)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_signals_are_left_alone_in_other_threads(tmp_path, add):
    graph, seen = tf.compat.v1.get_default_graph(), []

    def work():
        with graph.as_default(), open_session(tmp_path) as session:
            session.run(add)
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert (seen, saved_step(tmp_path)) == ([signal.SIG_DFL], 1)


def test_a_session_that_nobody_closed_gives_the_signals_back(tmp_path, add):
    session = open_session(tmp_path)
    session.run(add)
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    del session
    gc.collect()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@EACH
def test_a_session_left_open_does_not_make_a_later_first_signal_the_second(
    tmp_path, add, number
):
    left_open = open_session(tmp_path / "left open")
    for life in ("one", "two"):
        with Told() as told, open_session(tmp_path / life) as session:
            session.run(add)
            signal.raise_signal(number)
            assert session.should_stop()
        assert (told.status, saved_step(tmp_path / life)) == (128 + number, 1)
    left_open.close()


def test_a_forked_child_can_be_terminated_as_ever():
    watch = request.Watch()
    pid = os.fork()
    if pid == 0:
        signal.raise_signal(signal.SIGTERM)
        os._exit(7)  # the signal was taken
    _, status = os.waitpid(pid, 0)
    watch.end()
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


@EACH
def test_a_program_that_waits_in_native_code_for_its_first_session_ends_at_once(
    number, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_STOP_GRACE_SECS", "3600")
    library = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)  # of pthread.h; zeros are a free one
    pid = os.fork()
    if pid == 0:
        try:
            with request.watched(), request.creating_session():
                threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
                library.pthread_mutex_lock(mutex)
                library.pthread_mutex_lock(mutex)  # for ever, whatever signal arrives
        finally:
            os._exit(7)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + number


@EACH
def test_without_a_session_it_is_raised_at_once(number):
    with Told() as told, request.watched():
        signal.raise_signal(number)
        pytest.fail("went on")
    assert told.status == 128 + number
