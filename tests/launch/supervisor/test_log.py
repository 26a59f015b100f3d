"""Which lines say why a task failed, and where the log is."""

import contextlib
import resource
import shutil

import pytest

from estimator_runtime.launch.supervisor.log import Logs
from estimator_runtime.launch.task import Task

_CHIEF = Task(type="chief", index=0)


def test_a_task_that_reports_no_error_is_explained_by_its_last_lines():
    log = Logs([_CHIEF]).of[_CHIEF]
    for number in range(100):
        log.keep(f"step {number} done")
        log.keep("INFO:tensorflow:loss = 3")
    log.keep("")
    log.keep("Fatal Python error: Segmentation fault")
    log.keep("2026-11-20 14:00:00.123456: W tensorflow/core/x.cc:1] cancelled")
    assert log.excerpt() == (
        *(f"step {number} done" for number in range(81, 100)),
        "Fatal Python error: Segmentation fault",
    )


def test_what_a_task_reports_of_its_error_wins_over_what_it_prints():
    logs = Logs([_CHIEF])
    log = logs.of[_CHIEF]
    log.explain("train.py:3, in input_fn: ValueError: bad row 17\nplease check")
    for line in ("Traceback (most recent call last):", "KeyError: of a thread"):
        log.keep(line)
    assert log.excerpt() == (
        "train.py:3, in input_fn: ValueError: bad row 17",
        "please check",
    )
    log.start_run()
    assert log.excerpt() == ()


@contextlib.contextmanager
def _room(size):
    """Limit the size of files in bytes, as a full disk would."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_log_on_a_full_disk_is_named_once_and_the_last_lines_are_known(tmp_path):
    said = []
    logs = Logs([_CHIEF], said.append, str(tmp_path))
    logs.write(_CHIEF, "early")
    logs.flush()
    with _room(0):
        for line in ("late", "later"):
            logs.write(_CHIEF, line)
            logs.flush()
    logs.write(_CHIEF, "last")
    logs.flush()
    path = tmp_path / "chief-0.log"
    assert said == [
        f"the log of each task is in {tmp_path}",
        f"the log of chief, {path}, lacks lines: File too large; the job goes on",
    ]
    assert path.read_text() == "early\nlast\n"
    assert logs.of[_CHIEF].excerpt() == ("early", "late", "later", "last")


def test_a_chatty_task_leaves_the_disk_to_the_checkpoints(tmp_path):
    logs = Logs([_CHIEF], folder=str(tmp_path), most_bytes=800 << 10)
    for number in range(3000):
        logs.write(_CHIEF, f"{number:1023}")
        if number % 100 == 99:
            logs.flush()
    files = [tmp_path / "chief-0.log.1", tmp_path / "chief-0.log"]
    lines = "".join(path.read_text() for path in files).split()
    assert lines == [str(number) for number in range(1600, 3000)]


@pytest.mark.parametrize("target", ["thesis.tex", "dangling"])
def test_a_log_is_not_written_through_a_link(tmp_path, target):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "chief-0.log").symlink_to(tmp_path / target)
    logs = Logs([_CHIEF], folder=str(tmp_path / "logs"))
    assert logs.problem == (
        f"log folder '{tmp_path}/logs' cannot be written: it is a symbolic link; give "
        "another one with --log-dir"
    )
    logs.write(_CHIEF, "a line")
    logs.flush()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert not (tmp_path / "dangling").exists()


def test_logs_that_a_program_removes_are_created_again(tmp_path):
    logs = Logs([_CHIEF], folder=str(tmp_path / "logs"))
    logs.write(_CHIEF, "early")
    logs.flush()
    shutil.rmtree(tmp_path / "logs")
    logs.write(_CHIEF, "late")
    logs.check(0.0)
    logs.flush()
    assert (tmp_path / "logs" / "chief-0.log").read_text() == "late\n"
    assert logs.of[_CHIEF].excerpt() == ("early", "late")
