"""What a supervisor makes of events, by a clock and a back end that the test holds."""

import io
import os
import re
import shutil
import signal
import threading

import pytest

from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.launch import Job
from estimator_runtime.launch.supervisor.log import TaskLog
from estimator_runtime.launch.supervisor.supervisor import Supervisor
from estimator_runtime.launch.task import Ended, Reported
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.screen import DisplaySettings, Screen

_TASKS = ("chief", "worker 0", "ps 0")
_GANG = {"chief": 1, "worker": 2}
_TERM, _KILL = int(signal.SIGTERM), int(signal.SIGKILL)


class Tasks:
    """Tasks that do what the test says, and end when they are told to.

    Attributes:
        runs: Name of each task to its runs; the script is called when all have one.
        signals: The name of a task and the number, of each signal.
        stops_at_once: Whether trainers end when they get SIGTERM.
        supervisor: Who runs them.
    """

    def __init__(self, script, tasks):
        self._script = script
        self.runs, self.signals = {str(task): [] for task in tasks}, []
        self.stops_at_once = True

    def open(self, events, is_cancelled):
        self._events = events

    def place(self, addressed):
        return {task: f"h:{number + 1}" for number, task in enumerate(addressed)}

    def start(self, run, environ):
        self.runs[str(run.task)].append(run)
        if all(len(self.runs[task]) == run.attempt + 1 for task in self.runs):
            self._script(self, run.attempt)

    def signal(self, run, number):
        self.signals.append((str(run.task), int(number)))
        if number == _KILL:
            self.end(str(run.task), -number)
        elif str(run.task) != "ps 0" and self.stops_at_once:
            self.end(str(run.task), 143)

    def close(self):
        pass

    def report(self, task, **report):
        self._events.put(Reported(run=self.runs[task][-1], report=report))

    def end(self, task, status, **how):
        self._events.put(Ended(run=self.runs[task][-1], status=status, **how))


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a job of a script; (outcome, tasks, what was said)."""

    def run(script, at=None, replicas=None, **arguments):
        job = Job(
            command=("x",),
            replicas=replicas or {"chief": 1, "worker": 1, "ps": 1},
            log_dir=str(tmp_path / "logs"),
            **arguments,
        )
        times = iter(range(1000))  # a second for each look at the clock

        def clock():
            now = next(times)
            if now in (at or {}):
                at[now](tasks)
            return float(now)

        said = io.StringIO()
        tasks = Tasks(script, job.tasks)
        screen = Screen(Console(said, said), DisplaySettings(progress="none"))
        tasks.supervisor = Supervisor(job, tasks, screen, clock, tick_secs=0)
        outcome = tasks.supervisor.run()
        return outcome, tasks, said.getvalue()

    return run


@pytest.fixture
def hang(monkeypatch):
    """Return a function that makes each look at the checkpoints hang until the end."""
    hung = threading.Event()
    yield lambda: monkeypatch.setattr(recovery, "scan", lambda folder: hung.wait())
    hung.set()


def test_a_disk_that_hangs_is_named_and_stops_neither_restarts_nor_a_stop(
    run, saved, hang
):
    def script(tasks, attempt):
        if attempt == 0:
            hang()
            tasks.report("chief", model_dir=str(saved))
            tasks.stops_at_once = False
            tasks.end("worker 0", -_KILL)

    def cancel(tasks):
        tasks.supervisor.cancel(143, "the job was stopped by SIGTERM")

    outcome, tasks, said = run(script, at={60: cancel, 80: cancel}, grace_secs=40)
    assert (
        "the job was stopped by SIGTERM: its tasks end one after the other, each within "
        "40 s; a second request kills all at once\n"
    ) in said
    assert str(outcome) == (
        "the job was stopped by SIGTERM\n"
        f"newest good checkpoint: not known here, as {saved} does not answer"
    )
    assert outcome.exit_status == 143
    assert [len(tasks.runs[task]) for task in _TASKS] == [1, 2, 1]
    assert tasks.signals == [
        ("worker 0", _TERM),
        *((task, _KILL) for task in ("ps 0", "chief", "worker 0")),
    ]
    assert "the model directory: no answer for 1" in said


def test_a_disk_that_hangs_at_the_end_is_waited_for_and_then_fails_the_job(
    run, saved, hang
):
    def script(tasks, attempt):
        tasks.report("chief", model_dir=str(saved))
        hang()
        _train_to_20(saved)(tasks, attempt)

    outcome, _, said = run(script)
    assert (outcome.exit_status, outcome.reason) == (
        1,
        f"chief has saved step 20, but {saved} hangs",
    ), said


def test_a_file_of_metrics_that_hangs_stops_nobody(run, tmp_path):
    pipe = tmp_path / "metrics"  # that nobody reads
    os.mkfifo(pipe)

    def script(tasks, attempt):
        tasks.report("chief", step=1)

    outcome, _, said = run(
        script,
        at={
            30: lambda tasks: tasks.report("chief", step=2),
            60: lambda tasks: tasks.report("chief", step=3),
            90: _end_all,
        },
        env={"ESTIMATOR_RUNTIME_METRICS": str(pipe)},
    )
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # ends the wait for a reader
    assert outcome.exit_status == 0, said
    # The thread may be late, for which it may be named too, and then has an answer.
    named = said.count("the file of --metrics: no answer for")
    assert named - said.count("the file of --metrics: there is an answer again") == 1


def test_logs_that_hang_leave_the_job_its_checkpoints(run, saved, monkeypatch):
    hung = threading.Event()
    monkeypatch.setattr(TaskLog, "open", lambda *_: hung.wait())
    outcome, _, said = run(_train_to_20(saved))
    hung.set()
    assert outcome.exit_status == 0, said
    assert outcome.reason == f"the job is done at step 20, in {saved}/model.ckpt-20"


def test_a_job_in_which_no_task_reports_a_training_is_doubted(run):
    def script(tasks, attempt):
        for task in tasks.runs:
            tasks.end(task, 0)

    outcome, _, _ = run(script, replicas={"chief": 1, "worker": 1})
    assert (outcome.exit_status, outcome.reason) == (
        0,
        "the job is done; but no task has reported a training: does the program call "
        "tf.estimator.train_and_evaluate?",
    )


def test_a_trainer_without_its_ps_is_ended_once_the_chief_is_done(run):
    def script(tasks, attempt):
        tasks.end("chief", 0)
        tasks.end("ps 0", -_KILL)

    outcome, tasks, said = run(script)
    assert outcome.exit_status == 0, said
    assert tasks.signals == [("worker 0", _KILL)]


def _train_to_20(folder):
    def script(tasks, attempt):
        tasks.report("chief", model_dir=str(folder))
        tasks.report("chief", trained=20)
        tasks.end("chief", 0)
        tasks.end("worker 0", 0)

    return script


def test_a_last_checkpoint_that_shows_later_is_waited_for(run, saved, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(saved, folder, ignore=shutil.ignore_patterns("*-20.*"))
    outcome, _, said = run(
        _train_to_20(folder),
        at={60: lambda tasks: shutil.copytree(saved, folder, dirs_exist_ok=True)},
    )
    assert outcome.exit_status == 0, said
    assert outcome.reason.startswith("the job is done at step 20")
    waiting = re.findall(
        r"chief has saved step 20, but the newest has 10: waiting 59\d s at most", said
    )
    assert len(waiting) == 1, said


def _end_all(tasks):
    for task in ("chief", "worker 0"):
        tasks.end(task, 0)


def test_a_worker_that_is_gone_when_the_chief_is_done_is_not_missed(run):
    def script(tasks, attempt):
        tasks.report("chief", trained=20)
        tasks.end("chief", 0)
        tasks.end("worker 0", -_KILL)

    outcome, tasks, said = run(script, max_restarts=0)
    assert outcome.exit_status == 0, said
    assert tasks.signals[0] == ("ps 0", _TERM)
    assert (
        "worker 0 was killed by SIGKILL when the last checkpoint was saved: no further "
        "steps of it are needed\n"
    ) in said


@pytest.mark.parametrize("first", ["chief", "worker 0"])
def test_a_gang_whose_leader_is_done_is_not_started_again(run, first):
    def script(tasks, attempt):
        tasks.report("chief", trained=20)
        ends = {"chief": 0, "worker 0": -_KILL}
        for task in sorted(ends, key=lambda task: task != first):
            tasks.end(task, ends[task])

    outcome, tasks, said = run(script, replicas=_GANG)
    assert outcome.exit_status == 0, said
    assert [len(runs) for runs in tasks.runs.values()] == [1, 1, 1]
    assert ("worker 1", _KILL) in tasks.signals
    assert " when the last checkpoint was saved: " in said


def test_a_trainers_own_error_after_the_training_leaves_the_leader_its_last_save(run):
    def script(tasks, attempt):
        tasks.stops_at_once = False
        tasks.report("worker 0", unfinished=["model"])
        tasks.report("worker 0", unfinished=[], error=["builtins.KeyError"])
        tasks.end("worker 0", 1)

    def end(tasks):
        tasks.report("chief", trained=20)
        for task in ("chief", "worker 1"):
            tasks.end(task, 0)

    outcome, tasks, _ = run(script, at={20: end}, replicas=_GANG, max_restarts=0)
    assert outcome.exit_status == 1
    assert "ended with KeyError" in outcome.reason
    assert tasks.signals == []


@pytest.mark.parametrize("is_before", [True, False])
def test_a_trainers_own_error_fails_a_gang_whose_leader_is_done(run, is_before):
    def script(tasks, attempt):
        tasks.stops_at_once = False

        def fail():
            tasks.report("worker 0", unfinished=[], error=["builtins.KeyError"])
            tasks.end("worker 0", 1)

        if is_before:
            fail()
        tasks.report("chief", trained=20)
        for task in ("worker 1", "chief"):
            tasks.end(task, 0)
        if not is_before:
            fail()

    outcome, tasks, said = run(script, replicas=_GANG)
    assert (outcome.exit_status, outcome.reason) == (
        1,
        "worker 0 ended with KeyError (exit status 1): chief is done, and would train "
        "again with it",
    ), said
    assert [len(runs) for runs in tasks.runs.values()] == [1, 1, 1]
    assert tasks.signals == []


@pytest.mark.parametrize(
    "task, reports", [("worker 0", "worker 0"), ("ps 0", "chief")], ids=["worker", "ps"]
)
@pytest.mark.parametrize("is_progress", [True, False])
def test_restarts_come_back_with_progress(run, task, reports, is_progress):
    """A ps reports no steps: it serves those of the chief."""

    def kill(tasks):
        tasks.end(task, -_KILL)

    def step(number):
        return lambda tasks: tasks.report(reports, step=number if is_progress else 1)

    at = {20: kill, 30: step(2), 40: step(3), 50: kill, 60: step(4), 70: step(5)}
    outcome, _, said = run(
        lambda tasks, attempt: tasks.report(reports, step=1),
        at={**at, 80: kill, 90: _end_all},
        max_restarts=1,
        refill_restarts_secs=8.0,
    )
    restarting = f"{task} was killed by SIGKILL: restarting it now (1 of 1); the "
    times = 3 if is_progress else 1
    assert (
        said.count(f"{restarting}count starts again at 0 after 8 s of new steps\n")
        == times
    )
    used_up = f"{task} was killed by SIGKILL: 1 restart used up"
    done = "the job is done, after 3 restarts"
    assert outcome.reason == (done if is_progress else used_up)


_EVALUATED = {"chief": 1, "ps": 1, "evaluator": 1}


def _fail_to_evaluate(tasks, attempt=0):
    tasks.report("evaluator", error=["builtins.KeyError"])
    tasks.end("evaluator", 1)


def test_a_training_goes_on_and_ends_without_an_evaluator_that_fails_again_and_again(
    run, saved
):
    def end(tasks):
        tasks.report("chief", model_dir=str(saved))
        tasks.report("chief", trained=20)
        tasks.end("chief", 0)

    outcome, tasks, said = run(
        _fail_to_evaluate, at={20: _fail_to_evaluate, 60: end}, replicas=_EVALUATED
    )
    why = "evaluator ended with KeyError (exit status 1): the same failure as the last time"
    assert f"| {why}; the training goes on without it\n" in said
    assert (outcome.exit_status, outcome.reason) == (
        3,
        f"the training is done at step 20, in {saved}/model.ckpt-20, but its evaluation "
        f"failed: {why}",
    )
    assert (outcome.task, outcome.checkpoint) == (
        "evaluator",
        f"{saved}/model.ckpt-20",
    )
    assert outcome.log.endswith("/logs/evaluator-0.log")
    assert [len(runs) for runs in tasks.runs.values()] == [1, 1, 2]


_EARLY = (
    "chief exited with status 0 before its training in '/m' had finished (does the "
    "program catch an error, or exit early? let the error propagate, or exit with "
    "another status)"
)


def test_the_first_stop_of_a_job_that_ends_already_lets_the_chief_save(run):
    def script(tasks, attempt):
        tasks.stops_at_once = False
        tasks.end("worker 0", -_KILL, cause="lost its node", is_machine_lost=True)

    def cancel(tasks):
        tasks.supervisor.cancel(143, "the job was stopped by SIGTERM")

    at = {20: cancel, 30: lambda tasks: tasks.end("chief", 143)}
    outcome, tasks, said = run(script, at=at, grace_secs=40)
    assert outcome.is_machine_lost
    assert [it for it in tasks.signals if it[0] == "chief"] == [("chief", _TERM)]
    assert "the job was stopped by SIGTERM: its tasks end one after the other" in said


@pytest.mark.parametrize("replicas", [None, _GANG], ids=["ps", "gang"])
def test_a_chief_that_ends_with_0_in_a_training_has_failed(run, replicas):
    def script(tasks, attempt):
        tasks.report("chief", unfinished=["/m"])
        tasks.report("chief", step=30)
        tasks.end("chief", 0)

    outcome, tasks, said = run(
        script, at={40: lambda tasks: script(tasks, 1)}, replicas=replicas
    )
    assert (outcome.exit_status, outcome.reason) == (
        1,
        f"{_EARLY}: the same failure as the last time at step 30",
    )
    assert len(tasks.runs["chief"]) == 2
    assert f"{_EARLY}: restarting " in said
