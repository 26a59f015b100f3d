"""The restart counts that TensorBoard shows of a job."""

import pytest

from estimator_runtime.launch.supervisor.record import Record
from estimator_runtime.launch.supervisor.restart_scalars import RestartScalars


def _scalars(path):
    """Return (the step, the value of each tag) of each event in a file but the first."""
    import tensorflow as tf

    _, *events = tf.compat.v1.train.summary_iterator(str(path))
    return [
        (event.step, {value.tag: value.simple_value for value in event.summary.value})
        for event in events
    ]


@pytest.fixture
def restarting(job_of):
    """Return (chief, worker, the record of their job, its scalars)."""
    job, tasks = job_of(is_started=False, replicas={"chief": 1, "worker": 1})
    record, states = Record(job.job), list(tasks.values())
    return *states, record, RestartScalars(states, record, clock=lambda: 1e9)


def _restart(state, record):
    state.end(1)
    state.restart(at=1.0)
    state.start(now=1.0)
    record.restarts += 1


def test_each_change_is_written_at_the_step_that_was_reported_last(
    restarting, tmp_path
):
    chief, worker, record, scalars = restarting
    scalars.update()
    chief.start(now=0.0)
    worker.start(now=0.0)
    scalars.update()
    assert list(tmp_path.iterdir()) == []  # nobody has said where
    record.model_dir = str(tmp_path)
    scalars.update()
    scalars.update()
    chief.hear({"step": 70}, now=1.0)
    _restart(worker, record)
    scalars.update()
    _restart(chief, record)  # what it had reported is forgotten, but not by us
    scalars.update(is_end=True)
    [path] = tmp_path.glob("launcher/events.*")
    assert _scalars(path) == [
        (0, {"restarts/chief-0": 0, "restarts/worker-0": 0, "restarts/job": 0}),
        (70, {"restarts/chief-0": 0, "restarts/worker-0": 1, "restarts/job": 1}),
        (70, {"restarts/chief-0": 1, "restarts/worker-0": 1, "restarts/job": 2}),
    ]
