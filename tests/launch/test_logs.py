"""What of a log says why a task failed, and where the log is."""

from estimator_runtime.launch.logs import TaskLog, excerpt
from estimator_runtime.launch.task import Task


def test_the_excerpt_is_the_last_traceback_without_what_tensorflow_says_after_it():
    lines = [
        "INFO:tensorflow:loss = 3",
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "    main()",
        "KeyError: 'label'",
        "the key has two lines",
        "2026-11-20 14:00:00.123456: W tensorflow/core/x.cc:1] cancelled",
    ]
    assert excerpt(lines) == tuple(lines[1:6])


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
        f"{tmp_path}/logs/worker-1.log cannot have it: No space left on device"
    ]
