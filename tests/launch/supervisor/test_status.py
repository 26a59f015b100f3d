"""How far a job is, in numbers, with the time passed in."""

import types

import pytest

from estimator_runtime.launch.supervisor.actions import Fail
from estimator_runtime.launch.supervisor.status import Status


class _Record(types.SimpleNamespace):
    """The record of a job whose newest checkpoint is of the step that a test gives."""

    saved, restarts, model_dir = None, 0, "/m"

    def __init__(self, job):
        of = {task: types.SimpleNamespace(path=f"/m/{task}.log") for task in job.tasks}
        super().__init__(logs=types.SimpleNamespace(of=of), state=job)

    def saved_step(self):
        return self.saved


@pytest.fixture
def look(job_of):
    """Return (a function that gives the status at a time, tasks by name, record)."""
    job, tasks = job_of(replicas={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    record = _Record(job)
    for state in tasks.values():
        state.hear({"imported": True}, now=0.0)
    return Status(job, record).now, tasks, record


def _row(seen, name):
    return next(task for task in seen.tasks if task.name == name)


def test_a_job_has_the_steps_and_the_rates_that_its_tasks_report(look):
    look, tasks, record = look
    tasks["chief"].hear({"step": 100, "steps_here": 60, "last_step": 1000}, now=1.0)
    tasks["worker 0"].hear({"step": 99, "steps_here": 40}, now=1.0)
    look(1.0)
    tasks["chief"].hear({"step": 300, "steps_here": 160, "loss": 0.5, "pid": 7}, 2.9)
    tasks["worker 0"].hear({"step": 298, "steps_here": 140, "hidden": 2}, now=2.9)
    metrics = {"loss": 0.25, "global_step": 100}
    tasks["evaluator"].hear({"metrics": metrics, "best_metric": "auc"}, now=2.9)
    record.restarts, record.saved = 1, 250
    seen = look(3.0)
    assert (seen.step, seen.last_step, seen.rate, seen.saved_step, seen.restarts) == (
        300, 1000, 100.0, 250, 1,
    )  # fmt: skip
    assert (seen.loss, seen.model_dir, seen.hidden_warnings) == (0.5, "/m", 2)
    assert seen.elapsed_secs == 2.0
    chief = _row(seen, "chief")
    assert (chief.state, chief.step, chief.rate, chief.pid) == (None, 300, 50.0, 7)
    assert chief.log == "/m/chief.log"
    assert _row(seen, "worker 0").rate == 50.0
    evaluator = _row(seen, "evaluator")
    assert (evaluator.metrics, evaluator.best_metric) == (metrics, "auc")


def test_a_row_says_how_a_task_has_ended(look):
    look, tasks, _ = look
    tasks["chief"].hear({"step": 999, "trained": 1000, "pid": 7}, now=1.0)
    for name in ("chief", "worker 0"):
        tasks[name].end(0)
    tasks["ps 0"].stop(1.0, 2.0)
    tasks["ps 0"].release()
    tasks["ps 0"].end(143)
    tasks["evaluator"].end(143)
    seen = look(2.0)
    assert seen.step == 1000
    assert {task.name: (task.state, task.pid) for task in seen.tasks} == {
        "ps 0": ("done", None),
        "chief": ("done", None),
        "worker 0": ("done", None),
        "evaluator": ("was stopped by SIGTERM", None),
    }


def test_a_row_of_a_stopped_job_names_no_signal(look):
    look, tasks, record = look
    record.state.ending = Fail("the job was stopped by SIGINT", 130)
    tasks["chief"].end(143)
    tasks["evaluator"].end(-15)
    tasks["worker 0"].end(1)
    seen = look(1.0)
    assert _row(seen, "chief").state == "stopped"
    assert _row(seen, "evaluator").state == "stopped"
    assert _row(seen, "worker 0").state == "ended with exit status 1"


def test_a_resumed_job_begins_at_the_step_of_its_checkpoint(look):
    look, tasks, record = look
    record.saved = 150
    assert (look(0.0).step, look(0.0).rate) == (150, None)
    tasks["chief"].hear({"step": 170}, now=5.0)  # restored, and not taken here
    assert (look(5.0).step, look(6.0).rate) == (170, None)
    tasks["chief"].hear({"step": 270}, now=7.0)
    assert look(7.0).rate == 100.0


def test_a_restarted_chief_counts_from_its_checkpoint(look):
    look, tasks, _ = look
    chief = tasks["chief"]
    chief.hear({"step": 200, "steps_here": 120}, now=1.0)
    chief.end(-9)
    chief.restart(at=2.0)
    chief.start(now=2.0)
    chief.hear({"step": 150, "steps_here": 1}, now=2.5)
    seen = look(3.0)
    assert (seen.step, seen.rate) == (150, None)
    assert (_row(seen, "chief").rate, _row(seen, "chief").restarts) == (None, 1)


@pytest.mark.parametrize(
    ("steps", "rates"),
    [
        (
            {0: 0, 30: 0, 32: 100, 34: 300, 44: 1300, 54: 2300, 64: 2500},
            [None, None, 50, 75, 100, 100, 60],
        ),
        ({0: 0, 100: 1, 150: 1, 200: 2, 350: 2}, [None, 1 / 100, 1 / 150, 1 / 100, None]),
    ],
    ids=["of the last ten seconds", "steps of minutes"],
)  # fmt: skip
def test_a_rate_is_that_of_the_last_seconds(look, steps, rates):
    look, tasks, _ = look
    found = []
    for now, step in steps.items():
        tasks["chief"].hear({"step": step}, float(now))
        found.append(look(float(now)).rate)
    assert found == rates
