"""What of a log says why a task failed, and where the log is."""

import errno
import io
import os
import re
import shutil

import pytest

from estimator_runtime.launch.supervisor import task_log
from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.task_log import TaskLog, excerpt
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task


def test_the_excerpt_is_the_last_traceback_without_what_tensorflow_says_after_it():
    lines = [
        "INFO:tensorflow:loss = 3",
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "    main()",
        "KeyError: 'label'",
        "the key has two lines",
        "INFO:tensorflow.estimator_runtime:Checkpoint of step 30: 12 MB in 0.1 s",
        "2026-11-20 14:00:00.123456: W tensorflow/core/x.cc:1] cancelled",
    ]
    assert excerpt(lines) == tuple(lines[1:6])


def test_the_excerpt_has_no_routine_output_that_came_between_the_lines():
    traceback = [
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "    main()",
        "KeyError: 'label'",
    ]
    chatter = [
        "estimator-runtime: chief started, pid 12",
        "2026-11-20 14:00:00.123456: I tensorflow/core/x.cc:1] for your information",
        "",
    ]
    for index in range(1, 4):
        lines = [*traceback[:index], *chatter, *traceback[index:]]
        assert excerpt(lines) == tuple(traceback)


def test_an_error_in_one_line_is_the_excerpt():
    lines = [
        "estimator-runtime: error: train.py:3: RunConfig: bad",
        "INFO:tensorflow:x",
    ]
    assert excerpt(lines) == (lines[0],)


def test_without_an_error_the_last_lines_that_are_no_chatter_are_the_excerpt():
    lines = [
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "WARNING:tensorflow:slow",
        "INFO:tensorflow.estimator_runtime:Checkpoint of step 30: 12 MB in 0.1 s",
        "I1120 00 x.cc] y",
        "",
    ]
    assert excerpt(lines) == ("b", "c", "d", "e", "f")


def test_a_long_traceback_is_cut_in_its_middle():
    lines = [
        "Traceback (most recent call last):",
        *(f"  {n}" for n in range(50)),
        "E: x",
    ]
    short = excerpt(lines)
    assert (short[0], short[5], short[-1], len(short)) == (
        lines[0], "  ... 33 lines ...", "E: x", 20,
    )  # fmt: skip


def test_lines_written_before_the_folder_is_known_are_in_the_file_too(tmp_path):
    log = TaskLog(Task(type="worker", index=1), spool=lambda: str(tmp_path))
    log.write("early")
    assert (tmp_path / "worker-1.log").read_text() == "early\n"
    log.open(str(tmp_path / "logs"))
    assert not (tmp_path / "worker-1.log").exists()
    log.write("late")
    log.close()
    assert log.path == str(tmp_path / "logs" / "worker-1.log")
    assert (tmp_path / "logs" / "worker-1.log").read_text() == "early\nlate\n"


def test_a_log_on_a_full_disk_stops_once_and_keeps_the_last_lines(tmp_path):
    (tmp_path / "worker-1.log").symlink_to("/dev/full")
    said = []
    log = TaskLog(Task(type="worker", index=1), said.append)
    log.write("early")
    log.open(str(tmp_path))
    log.write("late")
    log.close()
    assert said == [
        f"the log of worker 1, {tmp_path}/worker-1.log, stops here: No space left on "
        "device; the job goes on"
    ]
    assert log.excerpt() == ("early", "late")


def test_what_there_is_no_room_for_in_the_folder_stays_where_it_is(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-1.log").symlink_to("/dev/full")
    said = []
    task = Task(type="worker", index=1)
    log = TaskLog(task, said.append, spool=lambda: str(tmp_path))
    log.write("early")
    log.open(str(tmp_path / "logs"))
    log.write("late")
    log.close()
    assert (log.path, log.problem) == (f"{tmp_path}/worker-1.log", None)
    assert (tmp_path / "worker-1.log").read_text() == "early\nlate\n"
    assert said == [
        f"the log of worker 1 stays at {tmp_path}/worker-1.log: "
        f"it cannot be copied to {tmp_path}/logs/worker-1.log: No space left on device"
    ]


@pytest.fixture
def removed(tmp_path):
    """Return (a log whose folder was removed when it had two lines, lines said, clock)."""
    now, said = [0.0], []
    log = TaskLog(Task(type="worker", index=1), said.append, clock=lambda: now[0])
    log.open(str(tmp_path / "model" / "logs"))
    for line in ("one", "two"):
        log.write(line)
    shutil.rmtree(tmp_path / "model")
    yield log, said, now
    log.close()


def test_a_log_that_was_removed_is_made_again_with_its_last_lines(removed, tmp_path):
    log, said, now = removed
    path = tmp_path / "model" / "logs" / "worker-1.log"
    log.write("three")
    assert not path.exists()  # it looks once in a second
    for seconds in (1.0, 1.5):
        now[0] = seconds
        log.write("more")
    assert not path.exists()  # somebody may be clearing the folder yet
    for seconds in (2.0, 2.5):
        now[0] = seconds
        log.write("most")
    before = "one\ntwo\nthree\nmore\nmore\nmost\nmost\n"
    assert path.read_text() == before
    path.unlink()
    for seconds in (3.5, 4.5):
        now[0] = seconds
        log.write("last")
    assert path.read_text() == f"{before}last\nlast\n"
    assert said == [
        f"the log of worker 1, {path}, was removed: it is created again, with the last "
        "lines only"
    ]
    assert (log.is_whole, log.problem) == (False, None)


def test_a_log_that_was_removed_is_there_again_when_an_outcome_names_it(
    removed, tmp_path
):
    log, _, _ = removed
    watch = TaskState(log.task, max_restarts=0)
    watch.log = log
    outcome = Record([log], log_dir="given").outcome(1, "it failed", watch)
    path = tmp_path / "model" / "logs" / "worker-1.log"
    assert f"\npart of the log: {path}\n" in str(outcome)
    assert path.read_text() == "one\ntwo\n"


def test_a_removed_log_that_cannot_be_made_again_is_given_up(removed, tmp_path):
    log, said, now = removed
    (tmp_path / "model").touch()
    for line in ("three", "four"):
        now[0] += 1.0
        log.write(line)
    path = tmp_path / "model" / "logs" / "worker-1.log"
    assert said[1:] == [
        f"the log of worker 1, {path}, stops here: Not a directory; the job goes on"
    ]
    assert log.excerpt() == ("one", "two", "three", "four")


class _Stale(io.FileIO):
    """A file that another machine has removed, on NFS."""

    def write(self, _):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_log_whose_handle_has_got_stale_is_made_again_and_not_given_up(tmp_path):
    now, said = [0.0], []
    log = TaskLog(Task(type="worker", index=1), said.append, clock=lambda: now[0])
    log.open(str(tmp_path))
    log.close()
    log._file = _Stale(log.path, "ab")
    for line in ("one", "two", "three"):
        log.write(line)
        now[0] += 1.0
    assert (tmp_path / "worker-1.log").read_text() == "one\ntwo\nthree\n"
    assert said == [
        f"the log of worker 1, {log.path}, was removed: it is created again, with the "
        "last lines only"
    ]
    log.close()


def test_a_file_system_that_counts_no_names_has_not_lost_the_log(tmp_path, monkeypatch):
    now, said = [0.0], []
    log = TaskLog(Task(type="worker", index=1), said.append, clock=lambda: now[0])
    log.open(str(tmp_path))
    none = os.stat_result([0] * 10)
    monkeypatch.setattr(task_log.os, "fstat", lambda fd: none)
    for line in ("one", "two", "three"):
        log.write(line)
        now[0] += 1.0
    log.close()
    assert (log.is_whole, said) == (True, [])
    assert (tmp_path / "worker-1.log").read_text() == "one\ntwo\nthree\n"


def test_a_program_that_removes_its_logs_fails_with_one_that_says_why(launch, tmp_path):
    (tmp_path / "toy.py").write_text(
        "import shutil\n"
        "print('clears all', flush=True)\n"
        "shutil.rmtree('logs')\n"
        "raise KeyError('label')\n"
    )
    options = ("--cold", "--workers", "0", "--ps", "0", "--max-restarts", "0")
    job = launch(*options, "--log-dir", "logs", "toy.py")
    assert job.end() == 1
    assert "  KeyError: 'label'\npart of the log: logs/chief-0.log\n" in job.text
    log = (tmp_path / "logs" / "chief-0.log").read_text()
    start, rest = log.split("\n", 1)
    assert re.fullmatch(r"estimator-runtime: chief started, pid \d+", start)
    assert rest.startswith("clears all\nTraceback (most recent call last):\n")
    assert log.endswith("KeyError: 'label'\n")
