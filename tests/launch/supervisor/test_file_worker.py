"""File operations that hang, and what a supervisor gets from them."""

import threading
import time

import pytest

from estimator_runtime.launch.supervisor.file_worker import FileWorker


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
    files = FileWorker("the logs", said.append, answer_secs=0.1)
    yield files
    hung.set()
    files.close()


def test_a_late_answer_is_that_of_the_next_call_for_the_same_question(files):
    calls = []

    def slow():
        calls.append(1)
        time.sleep(0.25)  # longer than `ask` waits
        return len(calls)

    deadline = time.monotonic() + 20
    while (found := files.ask("newest", slow)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (found, len(calls)) == (1, 1)


def test_an_operation_that_hangs_is_waited_for_once_and_the_latest_comes_after_it(
    files, hung
):
    assert files.ask("first", hung.wait) is None
    done = []
    for number in range(3):
        files.put("later", lambda number=number: done.append(number))
        assert not files.wait("later")
    hung.set()
    assert files.wait("later", lambda: True)
    assert done == [2]
    assert files.ask("again", lambda: "known") == "known"


def test_files_that_hang_are_named_once_and_again_when_they_answer(files, said, hung):
    files.put("question", hung.wait)
    for now in range(100, 140):
        files.check(float(now))
    assert files.is_named
    hung.set()
    assert files.wait("question")
    for now in range(140, 150):
        files.check(float(now))
    assert not files.is_named
    assert said == [
        "the logs: no answer for 15 s (is the disk frozen, or the file server gone?); "
        "the job goes on without",
        "the logs: there is an answer again",
    ]


def test_an_error_is_told_once_and_stops_no_later_operation(files, said):
    for _ in range(3):
        assert files.ask("question", lambda: int("x")) is None
    assert files.ask("question", lambda: "later") == "later"
    [line] = said
    assert line.startswith("the logs: ValueError(")
    assert line.endswith("; the job goes on")
