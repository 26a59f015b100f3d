"""How far a job is: the numbers, the line and the rows, with the time passed in."""

import pytest

from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.job_status import Status
from estimator_runtime.launch.terminal.views import describe, line, total


def _watch(task_type, index=0):
    watch = TaskState(Task(type=task_type, index=index), max_restarts=3)
    watch.start(now=0.0)
    return watch


class _Record(Record):
    """The record of a job whose newest checkpoint is of the step that a test gives."""

    saved = (None, None)

    def _scan(self):
        return (*self.saved, None)


@pytest.fixture
def record(tmp_path):
    record = _Record([], None)
    record.model_dir = str(tmp_path)
    return record


def test_the_line_has_the_steps_their_rates_the_checkpoint_and_the_metrics(record):
    chief, worker, evaluator = _watch("chief"), _watch("worker"), _watch("evaluator")
    status = Status([chief, worker, evaluator], record)
    assert line(status.poll(now=10.0)) == "step 0 | checkpoint none"
    chief.hear({"step": 100, "steps_here": 60}, now=10.5)
    worker.hear({"step": 99, "steps_here": 40}, now=10.5)
    status.poll(now=11.0)
    chief.hear({"step": 300, "steps_here": 160}, now=12.9)
    worker.hear({"step": 298, "steps_here": 140}, now=12.9)
    evaluator.hear({"metrics": {"loss": 0.25}}, now=12.9)
    record.restarts = 1
    assert status.poll(now=11.5) is None
    assert line(status.poll(now=13.0)) == (
        "step 300 | 100.0 steps/s (chief 50.0, worker 0 50.0) | checkpoint none | "
        "evaluated loss 0.25 | restarts 1"
    )


@pytest.fixture
def job(record):
    """Return (status, watches by name) of a job that has trained for four seconds."""
    watches = [_watch(name) for name in ("ps", "chief", "worker", "evaluator")]
    status = Status(watches, record)
    named = {watch.task.type: watch for watch in watches}
    named["chief"].hear({"step": 0, "steps_here": 0, "last_step": 1000}, now=0.0)
    status.poll(now=0.0)
    named["chief"].hear({"step": 200, "steps_here": 120, "loss": 0.25}, now=3.9)
    named["worker"].hear({"step": 199, "loss": 0.5}, now=3.9)
    metrics = {"accuracy": 0.75, "global_step": 100, "loss": 0.3}
    named["evaluator"].hear({"metrics": metrics}, now=3.9)
    return status, named


def test_a_row_says_how_far_each_task_is(job):
    status, _ = job
    assert [(t.name, describe(t)) for t in status.poll(now=4.0).tasks] == [
        ("ps 0", "running"),
        ("chief", "step 200, 30.0 steps/s, loss 0.25"),
        ("worker 0", "step 199, loss 0.5"),
        ("evaluator", "evaluated step 100: loss 0.3, accuracy 0.75"),
    ]


def test_the_bar_is_of_the_whole_job_with_the_loss_of_the_chief(job):
    status, _ = job
    seen = status.poll(now=4.0)
    text = total(seen, columns=80, can_unicode=False)
    assert text.startswith(" 20%|##")
    assert text.endswith("| 200/1000 [00:04<00:16, 50.00step/s, loss=0.25]")
    assert len(text) == 80
    assert line(seen) == (
        "step 200 of 1000 | 50.0 steps/s (chief 30.0) | loss 0.25 | 0:00:16 left | "
        "checkpoint none | evaluated step 100: loss 0.3, accuracy 0.75"
    )


def test_the_bar_has_the_newest_checkpoint_and_the_restarts(job, record):
    status, _ = job
    record.saved = ("model.ckpt-150", 150)
    record.restarts = 2
    text = total(status.poll(now=4.0), columns=90, can_unicode=True)
    assert text.endswith("loss=0.25, saved=step 150, restarts=2]")
    assert "█" in text


def test_steps_beyond_the_last_one_fill_the_bar_and_no_more(job):
    status, named = job
    named["chief"].hear({"step": 1002}, now=5.0)
    assert "| 1000/1000 [" in total(status.poll(now=5.0), 80, can_unicode=True)


def test_the_row_of_an_evaluator_has_the_best_metric_next_to_the_loss(job):
    status, named = job
    metrics = {"accuracy": 0.75, "auc": 0.5, "loss": 0.3, "global_step": 100}
    named["evaluator"].hear({"metrics": metrics, "best_metric": "auc"}, now=3.9)
    (*_, row) = status.poll(now=4.0).tasks
    assert describe(row) == "evaluated step 100: loss 0.3, auc 0.5, accuracy 0.75"
    assert line(status.poll(now=5.0)).endswith("evaluated step 100: loss 0.3, auc 0.5")


def test_a_row_has_the_pid_of_a_task_that_runs(job):
    status, named = job
    named["ps"].hear({"pid": 4711}, now=3.9)
    assert describe(status.poll(now=4.0).tasks[0]) == "running, pid 4711"
    named["ps"].end(status=0)
    assert describe(status.poll(now=5.0).tasks[0]) == "done"


def test_a_job_that_waits_for_the_end_of_a_task_says_so_and_no_rate(job):
    status, named = job
    named["chief"].hear({"step": 1001}, now=5.0)
    named["worker"].end(status=0)
    named["evaluator"].end(status=0)
    seen = status.poll(now=5.0)
    assert line(seen) == (
        "step 1000 of 1000 | waiting for chief | loss 0.25 | checkpoint none | "
        "evaluated step 100: loss 0.3, accuracy 0.75"
    )
    assert total(seen, 80, can_unicode=False).endswith(
        "| 1000/1000 [00:05, loss=0.25, waiting for chief]"
    )
    named["chief"].end(status=0)
    seen = status.poll(now=6.0)
    assert line(seen).startswith("step 1000 of 1000 | loss 0.25 | checkpoint none")
    assert total(seen, 80, can_unicode=False).endswith("| 1000/1000 [00:06, loss=0.25]")


def test_a_task_that_ends_after_the_last_step_is_finishing_and_has_no_rate(job):
    status, named = job
    named["chief"].hear({"step": 1000, "steps_here": 500}, now=5.0)
    assert describe(status.poll(now=5.0).tasks[1]) == "finishing, step 1000, loss 0.25"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (58, "200/1000 [00:04<00:16, 50.00step/s, saved=step 150]"),
        (40, "200/1000 [saved=step 150]"),
        (12, "200/1000 [sa"),
    ],
)
def test_a_narrow_bar_loses_all_else_before_the_newest_checkpoint(
    columns, text, job, record
):
    status, _ = job
    record.saved = ("model.ckpt-150", 150)
    assert total(status.poll(now=4.0), columns, can_unicode=False) == text


def test_a_resumed_job_begins_at_the_step_of_its_checkpoint(record):
    record.saved = ("model.ckpt-150", 150)
    chief = _watch("chief")
    chief.hear({"last_step": 1000}, now=0.0)
    seen = Status([chief], record).poll(now=0.0)
    assert "| 150/1000 [" in total(seen, 80, can_unicode=True)


def test_without_a_last_step_the_bar_counts(record):
    chief = _watch("chief")
    status = Status([chief], record)
    chief.hear({"step": 70}, now=0.5)
    assert total(status.poll(now=1.0), 80, True) == "70step [00:00, ?step/s]"


def _rates(record, *looks):
    chief = _watch("chief")
    status = Status([chief], record)
    found = []
    for now, step in looks:
        chief.hear({"step": step}, now)
        found.append(status.poll(now).rate)
    return found


def test_a_rate_is_of_the_last_ten_seconds_and_begins_with_the_steps(record):
    looks = [(0, 0), (30, 0), (32, 100), (34, 300), (44, 1300), (54, 2300), (64, 2500)]
    assert _rates(record, *looks) == [None, None, 50, 75, 100, 100, 60]


def test_the_steps_of_a_restored_checkpoint_are_not_counted_as_taken(record):
    chief = _watch("chief")
    status = Status([chief], record)
    assert status.poll(now=0.0).rate is None
    chief.hear({"step": 17_533}, now=5.0)
    assert (status.poll(now=5.0).step, status.poll(now=6.0).rate) == (17_533, None)
    chief.hear({"step": 17_633}, now=7.0)
    assert status.poll(now=7.0).rate == 100.0


def test_a_job_that_stands_still_for_over_ten_seconds_has_no_rate(record):
    looks = [(0, 0), (1, 100), (11, 100), (12, 100), (202, 200)]
    assert _rates(record, *looks) == [None, 100, 100 / 11, None, 100 / 201]


def test_a_pause_that_is_over_does_not_count(record):
    looks = [(0, 0), (1, 100), (2, 200), (122, 300), (123, 400), (124, 500)]
    assert _rates(record, *looks)[-2:] == [100, 100]


def test_the_rate_of_steps_that_take_minutes_is_that_of_the_last_two(record):
    looks = [(0, 0), (100, 1), (150, 1), (200, 2), (300, 3), (350, 3)]
    assert _rates(record, *looks) == [None, 1 / 100, 1 / 150, 1 / 100, 1 / 100, 1 / 150]


def test_a_restarted_chief_is_named_and_its_steps_count_from_its_checkpoint(job):
    status, named = job
    chief = named["chief"]
    chief.end(status=-9)
    named["worker"].report.clear()
    chief.restart_at = 8.0
    (_, row, *_) = status.poll(now=5.0).tasks
    assert describe(row) == "restarting in 3 s, step 200, loss 0.25"
    chief.start(now=8.0)
    assert describe(status.poll(now=8.0).tasks[1]) == "running"
    chief.hear({"step": 150, "steps_here": 1}, now=8.5)
    seen = status.poll(now=9.0)
    assert seen.step == 150
    assert describe(seen.tasks[1]) == "step 150"


def test_at_the_end_the_last_step_stays(job):
    status, named = job
    named["chief"].hear({"step": 999, "trained": 1000}, now=6.0)
    for name in ("chief", "worker"):
        named[name].end(status=0)
    named["ps"].end(status=1)
    seen = status.poll(now=7.0)
    assert seen.step == 1000
    assert [task.state for task in seen.tasks] == [
        "ended with exit status 1",
        "done",
        "done",
        None,
    ]


def test_a_ps_that_is_stopped_when_nobody_needs_it_is_done(job):
    status, named = job
    ps = named["ps"]
    ps.end(status=143)
    assert describe(status.poll(now=5.0).tasks[0]) == "was stopped by SIGTERM"
    ps.is_dismissed = True
    assert describe(status.poll(now=6.0).tasks[0]) == "done"


def test_a_silent_task_is_named(job):
    status, named = job
    named["worker"].is_named_silent = True
    (worker,) = [t for t in status.poll(now=14.0).tasks if t.name == "worker 0"]
    assert describe(worker) == "no sign of life for 10 s, step 199, loss 0.5"
