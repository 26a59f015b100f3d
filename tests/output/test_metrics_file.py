"""The file that `--metrics` names, by a clock that the test holds."""

import json
import os

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.terminal.job_status import (
    JobMetrics,
    JobStatus,
    TaskStatus,
)
from estimator_runtime.output import metrics_file
from estimator_runtime.output.metrics_file import MetricsDisplay, MetricsFile
from estimator_runtime.output.progress_bar import Progress


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_progress_and_checkpoints_are_lines_of_json(tmp_path):
    path, now = tmp_path / "m.jsonl", [0.0]
    file = MetricsFile(str(path), clock=lambda: 1000.0 + now[0])
    display = MetricsDisplay(Progress(step=10), file, clock=lambda: now[0])
    for now[0], progress in (
        (0.5, Progress(step=20, last_step=100)),
        (2.0, Progress(step=50, last_step=100, loss=0.25, saved_step=40)),
        (2.5, Progress(step=60, last_step=100, loss=float("nan"), saved_step=40)),
    ):
        display.show(progress)
    now[0] = 3.0
    display.close()
    assert lines(path) == [
        {"time": 1002.0, "event": "checkpoint", "step": 40},
        {
            "time": 1002.0,
            "event": "progress",
            "step": 50,
            "last_step": 100,
            "loss": 0.25,
            "steps_per_sec": 20.0,
        },
        {
            "time": 1003.0,
            "event": "progress",
            "step": 60,
            "last_step": 100,
            "loss": None,
            "steps_per_sec": 10.0,
        },
    ]


def test_an_evaluation_has_its_numbers_and_its_step(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"earlier": 1}\n')
    metrics = {"loss": 0.5, "global_step": 7, "image": b"png"}
    MetricsFile(str(path), clock=lambda: 1.0).evaluation(metrics)
    assert lines(path) == [
        {"earlier": 1},
        {"time": 1.0, "event": "evaluation", "step": 7, "metrics": {"loss": 0.5}},
    ]


def _seen(step, saved_step=None, restarts=0, model_dir="m", **metrics):
    chief = TaskStatus(name="chief", step=step, rate=2.0, loss=0.5)
    evaluator = TaskStatus(name="evaluator", metrics=metrics)
    return JobStatus(
        elapsed_secs=1.0,
        step=step,
        last_step=9,
        rate=3.0,
        saved_step=saved_step,
        restarts=restarts,
        tasks=(chief, evaluator),
        model_dir=model_dir,
    )


def test_of_a_job_that_is_resumed_the_first_checkpoint_that_is_found_is_not_new(
    tmp_path,
):
    path = tmp_path / "m.jsonl"
    metrics = JobMetrics(MetricsFile(str(path), clock=lambda: 1.0))
    metrics.write(_seen(4, model_dir=None))
    metrics.write(_seen(4, saved_step=4))
    metrics.write(_seen(4, saved_step=5))
    assert lines(path) == [{"time": 1.0, "event": "checkpoint", "step": 5}]


def test_of_a_job_whatever_is_new_is_a_line(tmp_path):
    path = tmp_path / "m.jsonl"
    metrics = JobMetrics(MetricsFile(str(path), clock=lambda: 1.0))
    for seen in (
        _seen(4),
        _seen(4, saved_step=4),
        _seen(4, saved_step=4, restarts=1),
        _seen(5, saved_step=4, restarts=1, auc=0.5, global_step=4),
        _seen(5, saved_step=4, restarts=1, auc=0.5, global_step=4),
    ):
        metrics.write(seen)
    assert lines(path) == [
        {"time": 1.0, "event": "checkpoint", "step": 4},
        {"time": 1.0, "event": "restart", "step": 4, "restarts": 1},
        {"time": 1.0, "event": "evaluation", "step": 4, "metrics": {"auc": 0.5}},
        {
            "time": 1.0,
            "event": "progress",
            "step": 5,
            "last_step": 9,
            "loss": 0.5,
            "steps_per_sec": 3.0,
            "restarts": 1,
            "tasks": {"chief": {"step": 5, "steps_per_sec": 2.0}},
        },
    ]


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    path = str(tmp_path / "none" / "m.jsonl")
    with pytest.raises(ConfigError, match=r"--metrics or .* No such file or directory"):
        metrics_file.create({metrics_file.VARIABLE: path})


def test_a_file_that_cannot_be_written_any_more_is_told_of_once(tmp_path, caplog):
    file = MetricsFile(str(tmp_path / "none" / "m.jsonl"))
    file.write("checkpoint", 1)
    file.write("checkpoint", 2)
    assert [each.getMessage().rpartition(": ")[2] for each in caplog.records] == [
        "No such file or directory"
    ]


def test_a_pipe_is_refused_as_its_reader_could_stop_the_training(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError) as error:
        metrics_file.create({"ESTIMATOR_RUNTIME_METRICS": str(tmp_path / "pipe")})
    assert str(error.value) == (
        f"--metrics or ESTIMATOR_RUNTIME_METRICS: {str(tmp_path / 'pipe')!r} is a pipe, "
        "whose reader could stop the training; give a file, and follow it with tail -F"
    )
