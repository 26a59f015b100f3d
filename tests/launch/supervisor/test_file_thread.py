"""File operations that hang, and what a supervisor gets from them."""

import threading
import time

import pytest

from estimator_runtime.launch.supervisor.file_thread import FileThread


@pytest.fixture
def hung():
    """An event for which operations wait; it is set at the end."""
    hung = threading.Event()
    yield hung
    hung.set()


@pytest.fixture
def said():
    return []


@pytest.fixture
def files(said, hung):
    files = FileThread("the logs", said.append, answer_secs=0.1)
    yield files
    hung.set()
    files.close()


def test_operations_run_in_order_and_their_results_come_back(files):
    done = []
    for number in range(3):
        files.do(lambda number=number: done.append(number))
    assert files.ask(lambda: list(done), None) == [0, 1, 2]
    assert not files.is_hung


def test_one_that_hangs_is_waited_for_once_and_no_other_is_tried(files, hung):
    assert files.ask(hung.wait, "unknown") == "unknown"
    assert files.is_hung
    done = []
    assert files.ask(lambda: done.append(1), "unknown") == "unknown"
    last = files.do(lambda: done.append(2))
    hung.set()
    assert files.wait(last, lambda: True)
    assert (done, files.is_hung) == ([2], False)
    assert files.ask(lambda: "known", "unknown") == "known"


def test_files_that_hang_are_named_once_and_again_when_they_answer(files, said, hung):
    last = files.do(hung.wait)
    for now in range(100, 140):
        files.check(float(now))
    hung.set()
    files.wait(last)
    for now in range(140, 150):
        files.check(float(now))
    assert said == [
        "the logs: no answer for 15 s (is the disk frozen, or the file server gone?); "
        "the job goes on without",
        "the logs: there is an answer again",
    ]


def test_lines_are_waited_for_until_the_files_are_named_and_then_left_out(files, hung):
    files.do(hung.wait)
    files.check(0.0)
    assert not files.is_behind()
    for _ in range(2):
        files.do(lambda: None, 1 << 20)
    assert (files.is_behind(), files.has_room) == (True, True)
    files.check(15.0)
    assert not files.is_behind()
    files.do(lambda: None, 6 << 20)
    assert not files.has_room


def test_slow_files_are_waited_for_as_long_as_they_make_progress(files, hung):
    done = []
    for number in range(20):
        files.do(lambda number=number: (time.sleep(0.02), done.append(number)))
    assert files.drain()
    assert len(done) == 20
    files.do(hung.wait)
    assert not files.drain()


def test_an_error_in_files_that_the_job_can_do_without_is_named_once(said):
    logs = FileThread("the logs", said.append, is_vital=False)
    logs.do(lambda: int("x"))
    assert logs.ask(lambda: "later", None) == "later"
    for now in range(3):
        logs.check(float(now))
    logs.close()
    [line] = said
    assert line.startswith("the logs: ValueError(") and line.endswith(
        "; the job goes on"
    )


def test_an_error_that_nobody_waited_for_is_not_lost(files):
    def fail():
        raise RuntimeError("a mistake")

    files.wait(files.do(fail))
    with pytest.raises(RuntimeError, match="a mistake"):
        files.check(1.0)
