"""The restarts of a job, in event files that are written without TensorFlow."""

import io

import tensorflow as tf

from estimator_runtime.checkpoint.event_file import EventFile
from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.restart_metrics import RestartScalars
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console


def _events(path):
    return list(tf.compat.v1.train.summary_iterator(str(path)))


def _scalars(event):
    return {value.tag: value.simple_value for value in event.summary.value}


def test_tensorflow_reads_what_was_written(tmp_path):
    file = EventFile(str(tmp_path / "run"), now=1700000000.25)
    file.write({"a/b": 0.5, "zwölf": 12.0}, step=0, now=1700000001.5)
    file.write({"a/b": -1e30}, step=2**40, now=1700000002.0)
    # It checks the checksums.
    first, second, third = _events(file.path)
    assert (first.wall_time, first.file_version) == (1700000000.25, "brain.Event:2")
    assert (second.wall_time, second.step) == (1700000001.5, 0)
    assert _scalars(second) == {"a/b": 0.5, "zwölf": 12.0}
    assert (third.step, third.summary.value[0].tag) == (2**40, "a/b")


def test_its_name_is_one_that_tensorboard_reads_and_sorts_by_time(tmp_path):
    earlier = EventFile(str(tmp_path), now=999999999.0)
    later = EventFile(str(tmp_path), now=1000000000.0)
    names = [path.name for path in sorted(tmp_path.iterdir())]
    assert names == [earlier.path.split("/")[-1], later.path.split("/")[-1]]
    assert all(name.startswith("events.out.tfevents.") for name in names)


def _job(tmp_path, stderr=None):
    chief, worker = (
        TaskState(Task(type=task_type, index=0), max_restarts=3)
        for task_type in ("chief", "worker")
    )
    record = Record([], None)
    console = Console(io.StringIO(), stderr or io.StringIO())
    scalars = RestartScalars([chief, worker], record, console, clock=lambda: 1e9)
    return chief, worker, record, scalars


def test_each_change_is_written_at_the_step_that_was_reported_last(tmp_path):
    chief, worker, record, scalars = _job(tmp_path)
    scalars.look()
    chief.start(now=0.0)
    worker.start(now=0.0)
    scalars.look()
    assert list(tmp_path.iterdir()) == []  # nobody has said where
    record.model_dir = str(tmp_path)
    scalars.look()
    scalars.look()
    chief.hear({"step": 70}, now=1.0)
    worker.start(now=1.0)
    record.restarts += 1
    scalars.look()
    chief.start(now=2.0)  # what it had reported is forgotten, but not by us
    record.restarts += 1
    scalars.look(is_end=True)
    [path] = tmp_path.glob("launcher/events.*")
    assert [(event.step, _scalars(event)) for event in _events(path)[1:]] == [
        (0, {"restarts/chief-0": 0, "restarts/worker-0": 0, "restarts/job": 0}),
        (70, {"restarts/chief-0": 0, "restarts/worker-0": 1, "restarts/job": 1}),
        (70, {"restarts/chief-0": 1, "restarts/worker-0": 1, "restarts/job": 2}),
    ]


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path):
    stderr = io.StringIO()
    chief, _, record, scalars = _job(tmp_path, stderr)
    chief.start(now=0.0)
    (tmp_path / "launcher").touch()
    record.model_dir = str(tmp_path)
    scalars.look()
    record.restarts += 1
    scalars.look(is_end=True)
    assert stderr.getvalue() == (
        "launcher | the restarts cannot be written for TensorBoard: File exists\n"
    )
