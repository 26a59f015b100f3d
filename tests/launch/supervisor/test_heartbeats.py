"""Who is silent for too long, by a clock that the test holds."""

import io

from estimator_runtime.launch.supervisor.heartbeats import Heartbeats
from estimator_runtime.launch.supervisor.shutdown import Shutdown
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console


class _Signals:
    """Keeps the signals that a back end would send."""

    def __init__(self):
        self.sent = []

    def signal(self, run, number):
        self.sent.append((str(run.task), int(number)))


def test_a_silent_task_is_named_once_then_killed_once_and_a_sign_of_life_forgives():
    said, tasks = io.StringIO(), _Signals()
    watch = TaskState(Task(type="worker", index=1), max_restarts=3)
    watch.start(now=0.0)
    watch.hear({"imported": True}, now=0.0)
    console = Console(said, said)
    shutdown = Shutdown(tasks, [watch], [watch], grace_secs=1.0, console=console)
    heartbeats = Heartbeats(30.0, console, shutdown.kill)
    for now in (5.0, 10.0, 11.0):
        heartbeats.check([watch], now)
    assert said.getvalue() == (
        "launcher | worker 1 has given no sign of life for 10 s (is it stopped, or cut "
        "off?); after 30 s it counts as failed\n"
    )
    watch.hear({}, now=12.0)
    heartbeats.check([watch], 15.0)
    assert tasks.sent == []
    for now in (42.0, 43.0):
        heartbeats.check([watch], now)
    assert tasks.sent == [("worker 1", 9)]
    assert said.getvalue().endswith(
        "launcher | worker 1 gave no sign of life for 30 s: killing it\n"
    )
    watch.end(-9)
    assert watch.how_it_ended() == "gave no sign of life for 30 s"


def test_a_task_whose_program_is_done_has_longer_to_end():
    said, tasks = io.StringIO(), _Signals()
    watch = TaskState(Task(type="chief", index=0), max_restarts=3)
    watch.start(now=0.0)
    watch.hear({"imported": True, "ending": True}, now=0.0)
    console = Console(said, said)
    shutdown = Shutdown(tasks, [watch], [watch], grace_secs=1.0, console=console)
    heartbeats = Heartbeats(6.0, console, shutdown.kill)
    heartbeats.check([watch], 119.0)
    assert tasks.sent == []
    heartbeats.check([watch], 120.0)
    assert tasks.sent == [("chief", 9)]


def test_a_task_may_be_silent_for_longer_until_tensorflow_is_imported():
    said, tasks = io.StringIO(), _Signals()
    watch = TaskState(Task(type="chief", index=0), max_restarts=3)
    watch.start(now=0.0)
    console = Console(said, said)
    shutdown = Shutdown(tasks, [watch], [watch], grace_secs=1.0, console=console)
    heartbeats = Heartbeats(30.0, console, shutdown.kill)
    heartbeats.check([watch], 39.0)
    assert (said.getvalue(), tasks.sent) == ("", [])
    heartbeats.check([watch], 40.0)
    assert said.getvalue().endswith("; after 120 s it counts as failed\n")
    heartbeats.check([watch], 120.0)
    assert tasks.sent == [("chief", 9)]


def test_a_silent_task_that_uses_the_cpu_is_named_and_not_killed_until_it_stops():
    said, tasks = io.StringIO(), _Signals()
    watch = TaskState(Task(type="worker", index=1), max_restarts=3)
    watch.start(now=0.0)
    watch.hear({"imported": True}, now=0.0)
    console = Console(said, said)
    shutdown = Shutdown(tasks, [watch], [watch], grace_secs=1.0, console=console)
    heartbeats = Heartbeats(30.0, console, shutdown.kill)
    for now in range(2, 122, 2):
        watch.work(float(now))
        heartbeats.check([watch], float(now))
    working = "but uses the CPU: still waiting; a native call may be holding the GIL"
    assert said.getvalue().splitlines() == [
        f"launcher | worker 1 has not reported for {secs} s, {working}"
        for secs in (30, 60, 120)
    ]
    heartbeats.check([watch], 149.0)
    assert tasks.sent == []
    heartbeats.check([watch], 150.0)
    assert tasks.sent == [("worker 1", 9)]
    assert said.getvalue().splitlines()[3:] == [
        "launcher | worker 1 has given no sign of life for 29 s (is it stopped, or cut "
        "off?); after 30 s it counts as failed",
        "launcher | worker 1 gave no sign of life for 30 s: killing it",
    ]


def test_a_task_that_only_uses_the_cpu_after_its_program_is_done_is_stuck():
    said, tasks = io.StringIO(), _Signals()
    watch = TaskState(Task(type="chief", index=0), max_restarts=3)
    watch.start(now=0.0)
    watch.hear({"imported": True, "ending": True}, now=0.0)
    console = Console(said, said)
    shutdown = Shutdown(tasks, [watch], [watch], grace_secs=1.0, console=console)
    watch.work(119.0)
    Heartbeats(6.0, console, shutdown.kill).check([watch], 120.0)
    assert tasks.sent == [("chief", 9)]
    assert "uses the CPU" not in said.getvalue()


def test_a_task_that_takes_no_step_is_named_with_where_it_is():
    said = io.StringIO()
    console = Console(said, said)
    heartbeats = Heartbeats(30.0, console, None)
    task = Task(type="worker", index=1)
    heartbeats.report_stall(task, {"step": 7})
    assert said.getvalue() == ""
    stacks = [
        ["train.py:9, in <module>", "train.py:4, in input_fn"],
        ["gen.py:1, in g"],
    ]
    heartbeats.report_stall(task, {"stalled": {"secs": 300.4, "stacks": stacks}})
    assert said.getvalue() == (
        "launcher | worker 1 has taken no step for 300 s; it is at:\n"
        "launcher |   train.py:9, in <module>\n"
        "launcher |   train.py:4, in input_fn\n"
        "launcher | and another of its threads at:\n"
        "launcher |   gen.py:1, in g\n"
    )
