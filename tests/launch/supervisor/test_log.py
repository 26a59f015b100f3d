"""What of a log says why a task failed, and where the log is."""

import contextlib
import resource
import shutil

import pytest

from estimator_runtime.launch.supervisor.log import Excerpt, Logs
from estimator_runtime.launch.task import Task

_CHIEF = Task(type="chief", index=0)


def excerpt(lines):
    found = Excerpt()
    for line in lines:
        found.add(line)
    return found.lines()


def test_the_excerpt_ends_with_the_last_lines_after_an_error_that_was_handled():
    traceback = [
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in parse',
        "ValueError: bad row",
    ]
    steps = [f"step {i} done" for i in range(100)]
    found = excerpt([*traceback, *steps, "Fatal Python error: Segmentation fault"])
    assert found == (
        *traceback,
        *steps[:14],
        "  ...",
        *steps[-4:],
        "Fatal Python error: Segmentation fault",
    )


def test_the_excerpt_is_the_last_traceback_without_routine_output():
    lines = [
        "INFO:tensorflow:loss = 3",
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "    main()",
        "ValueError: in user code:",
        "WARNING:tensorflow:of another thread",
        '    File "train.py", line 3, in model_fn  *',
        "    ValueError: Feature hour is not in features dictionary.",
        "",
        "           ^^^^^^^^",
        "INFO:tensorflow.estimator_runtime:Checkpoint of step 30: 12 MB in 0.1 s",
        "2026-11-20 14:00:00.123456: W tensorflow/core/x.cc:1] cancelled",
    ]
    assert excerpt(lines) == (*lines[1:5], *lines[6:8])


def test_an_error_that_this_package_reports_is_the_excerpt():
    lines = [
        "Traceback (most recent call last):",
        "estimator-runtime: error: train.py:3: RunConfig: bad",
        "give another one",
        "INFO:tensorflow:x",
    ]
    assert excerpt(lines) == tuple(lines[1:3])


_FRAME = ['  File "train.py", line 3, in input_fn', "    read()"]


def test_the_traceback_is_the_excerpt_however_much_is_printed_after_it():
    error = ["ValueError: bad row 17", "please check"]
    lines = ["Traceback (most recent call last):", *_FRAME * 30, *error]
    cleanup = [f"{spaces}removing file {number}" for number in range(500) for spaces in ("", "  ")]  # fmt: skip
    assert excerpt([*lines, *cleanup])[:16] == (
        lines[0],
        "  ... 48 lines ...",
        *_FRAME * 6,
        *error,
    )
    assert len(excerpt([*lines, *cleanup])) < 40


def test_an_exception_that_python_ignores_is_not_the_reason():
    lines = ["Traceback (most recent call last):", *_FRAME, "ValueError: bad row 17"]
    ignored = [
        "Exception ignored in: <function File.__del__ at 0x7f>",
        "Traceback (most recent call last):",
        "TypeError: closed",
    ]
    assert excerpt([*lines, *ignored])[:4] == tuple(lines)


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
