"""What is shown of a job: its progress, and the lines that TensorFlow writes."""

import io

import pytest

from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal import views
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.job_status import Status


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def chief():
    watch = TaskState(Task(type="chief", index=0), max_restarts=3)
    watch.start(now=0.0)
    return watch


def shown(mode, stream, chief, looks):
    """Return what is written when the chief is at the steps of `looks`, by seconds."""
    console = Console(stream, stream)
    console.introduce(["chief"])
    way = views.View(mode, console)
    status = Status([chief], Record([], None))
    for now, step in looks.items():
        chief.hear({"step": step}, now)
        seen = status.poll(now)
        if seen is not None:
            way.show(seen, now)
    return stream.getvalue()


@pytest.mark.parametrize("mode", ["auto", "bar"])
def test_a_terminal_shows_a_row_for_each_task_and_a_bar(mode, chief):
    text = shown(mode, Terminal(), chief, {1.0: 10})
    assert text == (
        "\x1b[36mchief    | \x1b[0mstep 10\ntotal    | 10step [00:00, ?step/s]"
    )


def test_plain_is_one_line_below_the_others_on_a_terminal(chief):
    text = shown("plain", Terminal(), chief, {1.0: 10, 1.5: 11, 2.0: 20})
    assert text == (
        "step 10 | checkpoint none\r\x1b[Kstep 20 | 10.0 steps/s | checkpoint none"
    )


@pytest.mark.parametrize("mode", ["auto", "bar", "plain"])
def test_elsewhere_a_line_comes_every_ten_seconds_while_there_are_steps(mode, chief):
    looks = {0.0: 0, 1.0: 10, 9.0: 90, 10.0: 100, 15.0: 150, 18.0: 180, 20.0: 200}
    lines = shown(mode, io.StringIO(), chief, {**looks, 30.0: 200, 31.0: 201})
    assert [text.split(" | ")[1] for text in lines.splitlines()] == [
        "step 100",
        "step 200",
        "step 201",
    ]
    assert all(text.startswith("launcher | ") for text in lines.splitlines())


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_none_shows_nothing(stream, chief):
    assert shown("none", stream, chief, {0.0: 0, 10.0: 100, 20.0: 200}) == ""


# As TensorFlow writes them, of two versions.
