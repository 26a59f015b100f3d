"""The restart counts that TensorBoard shows of a job."""

import io

from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.restart_scalars import RestartScalars
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console


def _scalars(path):
    """Return (the step, the value of each tag) of each event in a file but the first."""
    import tensorflow as tf

    _, *events = tf.compat.v1.train.summary_iterator(str(path))
    return [
        (event.step, {value.tag: value.simple_value for value in event.summary.value})
        for event in events
    ]


def _restarting(stderr=None):
    chief, worker = (
        TaskState(Task(type=task_type, index=0), max_restarts=3)
        for task_type in ("chief", "worker")
    )
    record = Record([], None)
    console = Console(io.StringIO(), stderr or io.StringIO())
    scalars = RestartScalars([chief, worker], record, console, clock=lambda: 1e9)
    return chief, worker, record, scalars


def test_each_change_is_written_at_the_step_that_was_reported_last(tmp_path):
    chief, worker, record, scalars = _restarting()
    scalars.update()
    chief.start(now=0.0)
    worker.start(now=0.0)
    scalars.update()
    assert list(tmp_path.iterdir()) == []  # nobody has said where
    record.model_dir = str(tmp_path)
    scalars.update()
    scalars.update()
    chief.hear({"step": 70}, now=1.0)
    worker.start(now=1.0)
    record.restarts += 1
    scalars.update()
    chief.start(now=2.0)  # what it had reported is forgotten, but not by us
    record.restarts += 1
    scalars.update(is_end=True)
    [path] = tmp_path.glob("launcher/events.*")
    assert _scalars(path) == [
        (0, {"restarts/chief-0": 0, "restarts/worker-0": 0, "restarts/job": 0}),
        (70, {"restarts/chief-0": 0, "restarts/worker-0": 1, "restarts/job": 1}),
        (70, {"restarts/chief-0": 1, "restarts/worker-0": 1, "restarts/job": 2}),
    ]


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path):
    stderr = io.StringIO()
    chief, _, record, scalars = _restarting(stderr)
    chief.start(now=0.0)
    (tmp_path / "launcher").touch()
    record.model_dir = str(tmp_path)
    scalars.update()
    record.restarts += 1
    scalars.update(is_end=True)
    assert stderr.getvalue() == (
        "launcher | the restarts cannot be written for TensorBoard: File exists\n"
    )
