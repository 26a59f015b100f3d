"""What is shown of a job: its progress, and the lines that its tasks write."""

import dataclasses
import io
import re

import pytest

from estimator_runtime.launch import Job
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.job_status import JobStatus, TaskStatus
from estimator_runtime.launch.terminal.screen import (
    DisplaySettings,
    Screen,
    describe,
    line,
    total,
)

_CHIEF = Task(type="chief", index=0)
_EVALUATOR = TaskStatus(
    name="evaluator",
    metrics={"accuracy": 0.75, "auc": 0.5, "loss": 0.3, "global_step": 100},
    best_metric="auc",
)
_SEEN = JobStatus(
    elapsed_secs=64.0,
    step=200,
    last_step=1000,
    rate=50.0,
    saved_step=150,
    restarts=0,
    tasks=(
        TaskStatus(name="ps 0", state="running", pid=4711, log="/m/logs/ps-0.log"),
        TaskStatus(name="chief", step=200, rate=30.0, loss=0.25),
        _EVALUATOR,
    ),
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def _screen(stream=None, **settings):
    """Return (a screen, the stream that it writes to)."""
    stream = stream or io.StringIO()
    screen = Screen(Console(stream, stream), DisplaySettings(**settings))
    screen.console.introduce(["chief"])
    return screen, stream


# The progress.


def test_a_row_says_how_far_a_task_is():
    assert [describe(task) for task in _SEEN.tasks] == [
        "running, pid 4711",
        "step 200, 30.0 steps/s, loss 0.25",
        "evaluated step 100: loss 0.3, auc 0.5, accuracy 0.75",
    ]


def test_the_line_of_a_job_has_all_numbers():
    assert line(_SEEN) == (
        "step 200 of 1000 | checkpoint 150 | 50.0 steps/s (chief 30.0) | 0:00:16 left | "
        "loss 0.25 | evaluated step 100: loss 0.3, auc 0.5"
    )
    unknown = dataclasses.replace(
        _SEEN, step=7, last_step=None, rate=None, saved_step=None, restarts=2, tasks=()
    )
    assert line(unknown) == "step 7 | checkpoint none | restarts 2"


_TOTAL = (
    "step 200 of 1000 | checkpoint 150 | 50.0 steps/s | 0:00:16 left | loss 0.25 | "
    "0:01:04 elapsed"
)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (len(_TOTAL) + 28, f" 20% |####                | {_TOTAL}"),
        (len(_TOTAL) + 13, f" 20% |#    | {_TOTAL}"),
        (len(_TOTAL) + 12, _TOTAL),
    ],
)
def test_the_row_of_a_job_has_a_bar_where_there_is_room(columns, text):
    assert total(_SEEN, columns) == text


@pytest.mark.parametrize("progress", ["auto", "bar"])
def test_a_terminal_shows_a_row_for_each_task_and_a_bar(progress):
    screen, stream = _screen(Terminal(), progress=progress)
    screen.show(_SEEN, 1.0)
    screen.console.flush()
    names = [row.partition(" | ")[0].strip() for row in stream.getvalue().split("\n")]
    assert names == ["ps 0", "chief", "evaluator", "total"]


@pytest.mark.parametrize("progress", ["auto", "bar", "plain"])
def test_elsewhere_a_line_comes_every_ten_seconds_while_there_are_steps(progress):
    screen, stream = _screen(progress=progress)
    steps = {0.0: 0, 1.0: 10, 9.0: 90, 10.0: 100, 15.0: 150, 20.0: 200, 30.0: 200}
    for now, step in {**steps, 31.0: 201}.items():
        screen.show(dataclasses.replace(_SEEN, step=step), now)
    screen.console.flush()
    assert re.findall(r"launcher \| step (\d+)", stream.getvalue()) == [
        "100",
        "200",
        "201",
    ]


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_none_shows_nothing(stream):
    screen, stream = _screen(stream(), progress="none")
    for now in (0.0, 10.0, 20.0):
        screen.show(dataclasses.replace(_SEEN, step=int(now)), now)
    screen.console.flush()
    assert stream.getvalue() == ""


# The settings.


def _job(**options):
    return Job(command=("train.py",), replicas={"chief": 1, "ps": 1}, **options)


def test_what_the_job_says_wins_over_the_environment():
    environ = {"ESTIMATOR_RUNTIME_PROGRESS": "bar", "ESTIMATOR_RUNTIME_VERBOSE": "1"}
    assert DisplaySettings.of(_job(), {}) == DisplaySettings()
    job = _job(env={"ESTIMATOR_RUNTIME_PROGRESS": "none"})
    assert DisplaySettings.of(job, environ) == DisplaySettings(
        progress="none", log_level="debug"
    )


# The lines.


@pytest.mark.parametrize(
    ("stream", "settings", "expected"),
    [
        (Terminal, {}, ["w", "e", "printed"]),
        (Terminal, {"progress": "none"}, ["i", "w", "e", "printed"]),
        (Terminal, {"log_level": "info"}, ["i", "w", "e", "printed"]),
        (Terminal, {"log_level": "debug"}, ["i", "w", "e", "printed"]),
        (io.StringIO, {}, ["i", "w", "e", "printed"]),
        (io.StringIO, {"log_level": "error"}, ["e", "printed"]),
    ],
)
def test_only_warnings_are_above_the_rows_of_a_terminal_unless_more_is_wanted(
    stream, settings, expected
):
    screen, stream = _screen(stream(), **settings)
    for text in ("INFO:x:i", "WARNING:x:w", "ERROR:x:e"):
        screen.write(_CHIEF, text, is_error=True)
    screen.write(_CHIEF, "INFO:printed", is_error=False)
    screen.console.flush()
    shown = [text for text in stream.getvalue().splitlines() if text]
    assert [text.rpartition(":")[2] for text in shown] == expected
    screen.close()
    screen.console.flush()
    hidden = stream.getvalue().splitlines()[len(shown) :]
    assert len(hidden) == (len(expected) < 4)
