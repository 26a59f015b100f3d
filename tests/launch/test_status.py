"""The line that says how far a job is."""

from estimator_runtime.launch.record import Record
from estimator_runtime.launch.status import Status
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.watch import Watch


def _watch(task_type, index=0):
    watch = Watch(Task(type=task_type, index=index), max_restarts=3)
    watch.start(now=0.0)
    return watch


def test_the_line_has_the_steps_their_rates_the_checkpoint_and_the_metrics(tmp_path):
    chief, worker, evaluator = _watch("chief"), _watch("worker"), _watch("evaluator")
    record = Record([], None)
    record.model_dir = str(tmp_path)
    status = Status([chief, worker, evaluator], record)
    assert status.line(now=10.0) == "step 0 | checkpoint none"
    chief.hear({"step": 100, "steps_here": 60}, now=10.5)
    worker.hear({"step": 99, "steps_here": 40}, now=10.5)
    status.line(now=11.0)
    chief.hear({"step": 300, "steps_here": 160}, now=12.9)
    worker.hear({"step": 298, "steps_here": 140}, now=12.9)
    evaluator.hear({"metrics": {"loss": 0.25}}, now=12.9)
    record.restarts = 1
    assert status.line(now=11.5) is None
    assert status.line(now=13.0) == (
        "step 300 | 100.0 steps/s (chief 50.0, worker 0 50.0) | checkpoint none | "
        "evaluated: loss 0.25 | restarts 1"
    )
