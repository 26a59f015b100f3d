"""Who is asked to end, in which order, by a clock that the test holds."""

import io
import signal

from estimator_runtime.launch.supervisor.shutdown import Shutdown
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console

_KILL, _TERM = int(signal.SIGKILL), int(signal.SIGTERM)


class _Signals:
    """Keeps the signals that a back end would send."""

    def __init__(self):
        self.sent = []

    def signal(self, run, number):
        self.sent.append((str(run.task), int(number)))


def _job(*tasks, is_gang, said=None):
    """Return (the signals sent, the shutdown, task to watch) of tasks that run."""
    watches = {}
    for name in tasks:
        task_type, _, index = name.partition(" ")
        task = Task(type=task_type, index=int(index or 0))
        watches[name] = TaskState(task, max_restarts=3)
        watches[name].start(now=0.0)
    trainers = [watches[name] for name in tasks if name[0] in "cw"]
    signals = _Signals()
    console = Console(said or io.StringIO(), said or io.StringIO())
    shutdown = Shutdown(signals, watches.values(), trainers, 30.0, console, is_gang)
    return signals.sent, shutdown, watches


def test_where_there_is_a_ps_each_ends_when_those_before_it_have():
    sent, shutdown, watches = _job(
        "chief", "worker 0", "worker 1", "ps 0", is_gang=False
    )
    shutdown.begin(now=0.0, politely=True)
    assert sent == [("worker 0", _TERM), ("worker 1", _TERM)]
    for ended, asked in (
        ("worker 1", []),
        ("worker 0", ["chief"]),
        ("chief", ["ps 0"]),
    ):
        del sent[:]
        watches[ended].end(143)
        shutdown.go_on(now=1.0)
        assert sent == [(name, _TERM) for name in asked]


def test_who_takes_the_steps_for_all_ends_first_and_the_others_need_no_time():
    sent, shutdown, watches = _job(
        "chief", "worker 0", "worker 1", "ps 0", is_gang=False
    )
    watches["chief"].hear({"synchronous": True}, now=0.0)
    shutdown.begin(now=0.0, politely=True)
    assert sent == [("chief", _TERM)]
    watches["chief"].end(143)
    shutdown.go_on(now=1.0)
    assert sent[1:] == [("worker 0", _TERM), ("worker 1", _TERM)]
    watches["worker 0"].end(143)
    shutdown.go_on(now=2.0)
    shutdown.kill_overdue(now=3.0)
    assert sent[3:] == [("worker 1", _KILL)]
    watches["worker 1"].end(-9)
    shutdown.go_on(now=4.0)
    assert sent[4:] == [("ps 0", _TERM)]


def test_a_time_in_which_nobody_looked_does_not_count_against_a_task_that_saves():
    sent, shutdown, watches = _job("chief", is_gang=False)
    shutdown.begin(now=0.0, politely=True)
    watches["chief"].wait_longer(60.0)  # as after Ctrl-Z and fg
    shutdown.kill_overdue(now=89.0)
    assert sent == [("chief", _TERM)]
    shutdown.kill_overdue(now=90.0)
    assert sent[1:] == [("chief", _KILL)]


def test_a_gang_is_asked_at_once_and_killed_once_when_its_time_is_over():
    said = io.StringIO()
    sent, shutdown, _ = _job("chief", "worker 0", is_gang=True, said=said)
    shutdown.begin(now=0.0, politely=True)
    shutdown.kill_overdue(now=29.0)
    assert sent == [("chief", _TERM), ("worker 0", _TERM)]
    for now in (30.0, 31.0):
        shutdown.kill_overdue(now)
    assert sent[2:] == [("chief", _KILL), ("worker 0", _KILL)]
    assert said.getvalue() == (
        "launcher | chief did not end within 30 s: killing it\n"
        "launcher | worker 0 did not end within 30 s: killing it\n"
    )


def test_who_does_not_end_after_it_was_killed_is_given_up():
    sent, shutdown, watches = _job("chief", "worker 0", is_gang=True)
    shutdown.begin(now=0.0, politely=False)
    watches["chief"].end(-9)
    shutdown.kill_overdue(now=1.0)
    assert sent == [("chief", _KILL), ("worker 0", _KILL)]
    assert shutdown.immortal(now=14.0) == []
    [end] = shutdown.immortal(now=15.0)
    assert (end.run, end.status) == (watches["worker 0"].run, -_KILL)


def test_a_trainer_that_stops_by_itself_is_not_disturbed_while_it_saves():
    sent, shutdown, watches = _job("chief", "worker 0", is_gang=True)
    watches["worker 0"].end(143)
    shutdown.expect(watches["chief"], now=0.0)
    shutdown.begin(now=1.0, politely=True)
    shutdown.kill_overdue(now=29.0)
    assert sent == []
    shutdown.kill_overdue(now=30.0)
    assert sent == [("chief", _KILL)]


def test_before_a_move_the_leader_saves_while_the_ps_are_there():
    sent, shutdown, watches = _job("chief", "worker 0", "ps 0", is_gang=False)
    gang = list(watches.values())
    watches["worker 0"].end(-9, is_displaced=True)
    for _ in range(2):  # once for each end, in any order
        shutdown.clear(watches["worker 0"], gang, now=0.0)
        assert sent == [("chief", _TERM)]
    watches["chief"].end(143)
    shutdown.clear(watches["chief"], gang, now=1.0)
    assert sent == [("chief", _TERM), ("ps 0", _KILL)]


def test_before_a_move_nobody_saves_where_a_ps_is_gone():
    sent, shutdown, watches = _job("chief", "worker 0", "ps 0", "ps 1", is_gang=False)
    watches["ps 1"].end(-9, is_displaced=True)
    for _ in range(2):  # once for each end
        shutdown.clear(watches["ps 1"], list(watches.values()), now=0.0)
    assert sorted(sent) == [("chief", _KILL), ("ps 0", _KILL), ("worker 0", _KILL)]


def test_before_a_move_a_gang_that_has_lost_one_saves_nothing():
    sent, shutdown, watches = _job("chief", "worker 0", is_gang=True)
    watches["worker 0"].end(-9, is_displaced=True)
    shutdown.clear(watches["worker 0"], list(watches.values()), now=0.0)
    assert sent == [("chief", _KILL)]


def test_before_a_move_nobody_takes_a_step_that_the_leader_would_not_save():
    sent, shutdown, watches = _job(
        "chief", "worker 0", "worker 1", "ps 0", is_gang=False
    )
    gang = list(watches.values())
    watches["worker 0"].end(-9, is_displaced=True)
    shutdown.clear(watches["worker 0"], gang, now=0.0)
    assert sent == [("worker 1", _KILL)]
    watches["worker 1"].end(-9)
    shutdown.clear(watches["worker 1"], gang, now=1.0)
    assert sent[1:] == [("chief", _TERM)]


def test_a_leader_does_not_save_what_the_nan_of_another_has_reached():
    sent, shutdown, watches = _job("chief", "worker 0", "ps 0", is_gang=False)
    shutdown.begin(now=0.0, politely=True)
    assert sent == [("worker 0", _TERM)]
    error = "tensorflow.python.training.basic_session_run_hooks"
    error += ".NanLossDuringTrainingError"
    watches["worker 0"].hear({"error": [error]}, now=1.0)
    watches["worker 0"].end(1)
    shutdown.go_on(now=1.0)
    assert sent[1:] == [("chief", _KILL)]
