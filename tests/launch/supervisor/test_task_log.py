"""What of a log says why a task failed, and where the log is."""

import contextlib
import errno
import io
import os
import re
import resource
import shutil
import threading
import tracemalloc

import pytest

from estimator_runtime.launch.supervisor import task_log
from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.task_log import TaskLog, excerpt
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Run, Task


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


@contextlib.contextmanager
def _room(size):
    """Limit the size of files in bytes, as a full disk would."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_log_on_a_full_disk_stops_once_and_keeps_the_last_lines(tmp_path):
    said = []
    log = TaskLog(Task(type="worker", index=1), said.append)
    log.write("early")
    log.open(str(tmp_path))
    with _room(0):
        log.write("late")
    log.close()
    assert said == [
        f"the log of worker 1, {tmp_path}/worker-1.log, stops here: File too large; "
        "the job goes on"
    ]
    assert log.excerpt() == ("early", "late")


def test_what_there_is_no_room_for_in_the_folder_stays_where_it_is(tmp_path):
    said = []
    task = Task(type="worker", index=1)
    log = TaskLog(task, said.append, spool=lambda: str(tmp_path))
    log.write("early")
    with _room(3):
        log.open(str(tmp_path / "logs"))
    log.write("late")
    log.close()
    assert (log.path, log.problem) == (f"{tmp_path}/worker-1.log", None)
    assert (tmp_path / "worker-1.log").read_text() == "early\nlate\n"
    assert said == [
        f"the log of worker 1 stays at {tmp_path}/worker-1.log: "
        f"it cannot be copied to {tmp_path}/logs/worker-1.log: File too large"
    ]


KIB = 1 << 10


def _on_a_disk(free_bytes, folder):
    """Return (a log on a disk with so much space left, lines said)."""
    said = []
    log = TaskLog(
        Task(type="chief", index=0), said.append, free_bytes=lambda _: free_bytes
    )
    log.open(str(folder))
    return log, said


@pytest.mark.parametrize(
    "free_bytes, most_bytes",
    [(0, 64 * KIB), (40_000 * KIB, 800 * KIB), (10**13, 64 << 20)],
    ids=["full", "small", "large"],
)
def test_a_log_that_is_long_for_its_disk_is_renamed(tmp_path, free_bytes, most_bytes):
    path = tmp_path / "chief-0.log"
    path.touch()
    os.truncate(path, most_bytes - 1)  # of an earlier job
    log, said = _on_a_disk(free_bytes, tmp_path)
    log.write("the last line of the first file")
    assert [each.name for each in tmp_path.iterdir()] == ["chief-0.log"]
    log.write("the first line of the second")
    log.close()
    assert path.read_text() == "the first line of the second\n"
    assert (tmp_path / "chief-0.log.1").stat().st_size == most_bytes + 31
    assert said == [
        f"the log of chief, {path}, has reached {most_bytes >> 10} KiB: its lines are "
        f"in {path}.1 now, until the next ones replace them there"
    ]
    assert (log.is_whole, log.problem) == (False, None)


def test_a_log_whose_next_file_cannot_be_opened_goes_on_when_it_can(
    tmp_path, monkeypatch
):
    log, said = _on_a_disk(0, tmp_path)
    log.write("x" * 64 * KIB)
    with monkeypatch.context() as broken:
        broken.setattr(task_log.os, "makedirs", _raise_stale)
        for _ in range(2):
            log.write("one")
    log.write("two")
    log.close()
    assert (tmp_path / "chief-0.log").read_text() == "two\n"
    assert (len(said), log.problem) == (1, None)


def _raise_stale(*_, **__):
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_chatty_task_leaves_the_disk_to_the_checkpoints(tmp_path):
    log, said = _on_a_disk(40_000 * KIB, tmp_path)
    for number in range(3000):
        log.write(f"{number:1023}")
    log.close()
    files = [tmp_path / "chief-0.log.1", tmp_path / "chief-0.log"]
    assert sum(path.stat().st_size for path in files) <= 1600 * KIB
    lines = "".join(path.read_text() for path in files).split()
    assert lines == [str(number) for number in range(1600, 3000)]
    assert len(said) == 1


def test_the_logs_of_many_tasks_take_no_more_of_the_disk_than_one(tmp_path):
    free, said = 40_000 * KIB, []
    tasks = [Task(type="worker", index=index) for index in range(5)]
    logs = [TaskLog(task, free_bytes=lambda _: free) for task in tasks]
    Record(logs, log_dir=None, say=said.append).open_logs(str(tmp_path))
    for log in logs:
        for number in range(400):
            log.write(f"{number:1023}")
        log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1600 * KIB
    assert [line[:26] for line in said[1:]] == [
        f"the log of worker {index}, {tmp_path}"[:26] for index in range(5)
    ]


def test_no_more_is_copied_to_the_folder_than_a_log_may_have(tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    log = TaskLog(
        Task(type="chief", index=0),
        spool=lambda: str(spool),
        free_bytes=lambda folder: 10**13 if folder == str(spool) else 0,
    )
    for number in range(100):
        log.write(f"{number:1023}")
    log.open(str(tmp_path / "logs"))
    log.write("late")
    log.close()
    assert (tmp_path / "logs" / "chief-0.log").read_text() == "late\n"
    lines = (tmp_path / "logs" / "chief-0.log.1").read_text().split()
    assert lines == [str(number) for number in range(36, 100)]


@pytest.mark.parametrize("target", ["thesis.tex", "dangling"])
def test_a_log_is_not_written_through_a_link(tmp_path, target):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "chief-0.log").symlink_to(tmp_path / target)
    log = TaskLog(Task(type="chief", index=0))
    problem = Record([log], log_dir=None).open_logs(str(tmp_path / "logs"))
    assert problem == (
        f"log folder '{tmp_path}/logs' cannot be written: it is a symbolic link; give "
        "another one with --log-dir"
    )
    log.write("a line")
    log.close()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert not (tmp_path / "dangling").exists()


def test_logs_are_not_written_to_a_folder_that_is_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "logs").symlink_to(tmp_path / "elsewhere")
    task = Task(type="chief", index=0)
    record = Record([TaskLog(task)], log_dir=None)
    problem = record.take_model_dir(Run(task=task, attempt=0), str(tmp_path / "model"))
    assert problem == (
        f"log folder '{tmp_path}/model/logs' is a symbolic link, which somebody else "
        f"may have made; give --log-dir '{tmp_path}/elsewhere' to write there"
    )
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_long_lines_do_not_stay_in_memory():
    log = TaskLog(Task(type="chief", index=0))
    tracemalloc.start()
    try:
        for number in range(400):
            log.write(f"{number} {'x' * (1 << 20)}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 << 20
    assert [line[:5] for line in log.excerpt()] == [f"{n} x" for n in range(395, 400)]


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


def test_the_lines_of_a_failure_are_shown_though_its_log_hangs(tmp_path, monkeypatch):
    hung = threading.Event()
    monkeypatch.setattr(TaskLog, "write_file", lambda log, line: hung.wait())
    watch = TaskState(Task(type="worker", index=1), max_restarts=0)
    record = Record([watch.log], log_dir="given")
    for line in ("Traceback (most recent call last):", "KeyError: 'label'"):
        record.write(watch.log, line)
    outcome = record.outcome(1, "it failed", watch)
    hung.set()
    record.close()
    assert outcome.excerpt == (
        "Traceback (most recent call last):",
        "KeyError: 'label'",
    )
    assert not outcome.is_log_whole


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
