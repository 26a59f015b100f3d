"""What of a log says why a task failed, and where the log is."""

import contextlib
import re
import resource

import pytest

from estimator_runtime.launch.supervisor.log import Logs, excerpt
from estimator_runtime.launch.task import Task

_CHIEF = Task(type="chief", index=0)


def test_the_excerpt_is_the_last_traceback_with_its_whole_message_and_no_more():
    lines = [
        "INFO:tensorflow:loss = 3",
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "    main()",
        "ValueError: in user code:",
        "",
        '    File "train.py", line 3, in model_fn  *',
        "",
        "    ValueError: Feature hour is not in features dictionary.",
        "",
        "INFO:tensorflow.estimator_runtime:Checkpoint of step 30: 12 MB in 0.1 s",
        "2026-11-20 14:00:00.123456: W tensorflow/core/x.cc:1] cancelled",
    ]
    assert excerpt(lines) == tuple(lines[1:9])


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
    ]
    for index in range(1, 4):
        lines = [*traceback[:index], *chatter, *traceback[index:]]
        assert excerpt(lines) == tuple(traceback)


def test_an_error_that_this_package_reports_is_the_excerpt():
    lines = [
        "Traceback (most recent call last):",
        "estimator-runtime: error: train.py:3: RunConfig: bad",
        "",
        "give another one",
        "INFO:tensorflow:x",
    ]
    assert excerpt(lines) == tuple(lines[1:4])


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
    log = logs.of[_CHIEF]
    assert (log.excerpt(), log.is_whole) == (("early", "late", "later", "last"), False)


KIB = 1 << 10


def _on_a_disk(free_bytes, folder, tasks=(_CHIEF,)):
    """Return (the logs of tasks on a disk with so much space left, lines said)."""
    said = []
    logs = Logs(tasks, said.append, str(folder), free_bytes=lambda _: free_bytes)
    return logs, said


def test_a_chatty_task_leaves_the_disk_to_the_checkpoints(tmp_path):
    logs, said = _on_a_disk(40_000 * KIB, tmp_path)
    for number in range(3000):
        logs.write(_CHIEF, f"{number:1023}")
    logs.flush()
    files = [tmp_path / "chief-0.log.1", tmp_path / "chief-0.log"]
    assert sum(path.stat().st_size for path in files) <= 1600 * KIB
    lines = "".join(path.read_text() for path in files).split()
    assert lines == [str(number) for number in range(1600, 3000)]
    assert said[1:] == [
        f"the log of chief, {files[1]}, has reached 800 KiB: its lines are in {files[0]} "
        "now, until the next ones replace them there"
    ]
    assert not logs.of[_CHIEF].is_whole


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
