"""Tasks that somebody else starts, each with a TF_CONFIG: they end, and fail, well."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

_PROGRAM = str(Path(__file__).parent / "programs" / "train.py")


class _Task:
    """A process with a TF_CONFIG."""

    def __init__(self, folder, cluster, task_type, *arguments):
        inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
        config = {"cluster": cluster, "task": {"type": task_type, "index": 0}}
        self.output = folder / f"{task_type}-{len(list(folder.iterdir()))}.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "estimator_runtime", "run", _PROGRAM),
                    *arguments,
                ],
                cwd=folder,
                env={
                    **inherited,
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    "TF_CONFIG": json.dumps(config),
                    "ESTIMATOR_RUNTIME_START_DELAY_SECS": "0",
                    "ESTIMATOR_RUNTIME_RECOVERY_WAIT_SECS": "0.5",
                },
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def text(self):
        return self.output.read_text(errors="replace")

    @property
    def steps(self):
        return [int(step) for step in re.findall(r"^step (\d+)$", self.text, re.M)]

    def wait_until_it_listens(self, address):
        host, port = address.split(":")
        deadline = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection((host, int(port)), timeout=5).close()
            except OSError:
                assert self.process.poll() is None, self.text
                assert time.monotonic() < deadline, self.text
                time.sleep(0.1)

    def wait_for_step(self, step):
        deadline = time.monotonic() + 60
        while max(self.steps, default=-1) < step:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    def end(self, timeout_secs=60):
        try:
            return self.process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running:\n{self.text}")


@pytest.fixture
def start(tmp_path):
    """Give a function that starts a task, of (cluster, task type, arguments)."""
    started = []

    def start(cluster, task_type, *arguments):
        started.append(_Task(tmp_path, cluster, task_type, *arguments))
        return started[-1]

    yield start
    for task in started:
        task.process.kill()
        task.process.wait()


@pytest.fixture
def cluster_of(free_addresses):
    """Give a function that gives a cluster with one task of each type."""

    def cluster_of(*task_types):
        addresses = free_addresses(len(task_types))
        return {name: [a] for name, a in zip(task_types, addresses, strict=True)}

    return cluster_of


@pytest.mark.parametrize(
    "arguments", [["--strategy", "ps"], ["--steps", "5000", "--stop_at", "60"]]
)
def test_a_ps_and_an_evaluator_end_when_their_training_has(
    start, cluster_of, tmp_path, arguments
):
    # The note of an earlier training in the same folder is not the end of this one.
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "training_finished.json").write_text(
        '{"step": 5, "id": "of an earlier training", "job": null}'
    )
    cluster = cluster_of("chief", "worker", "ps")
    types = ("ps", "evaluator", "worker", "chief")
    tasks = [start(cluster, task_type, *arguments) for task_type in types]
    assert [task.end() for task in tasks] == [0, 0, 0, 0], [t.text for t in tasks]
    assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))
    reader = tf.train.load_checkpoint(str(tmp_path / "model"))
    assert reader.get_tensor("global_step") >= 60


def test_an_evaluator_outside_the_cluster_of_a_mirrored_strategy_works(
    start, cluster_of, tmp_path
):
    cluster = cluster_of("chief", "worker")
    types = ("evaluator", "worker", "chief")
    tasks = [start(cluster, each, "--strategy", "mwms") for each in types]
    assert [task.end() for task in tasks] == [0, 0, 0], [t.text for t in tasks]
    assert list(tmp_path.glob("model/eval/events.*"))
    assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))


def test_a_chief_that_comes_back_adopts_the_live_ps(start, cluster_of, tmp_path):
    cluster = cluster_of("chief", "ps")
    arguments = ("--save_steps", "10000", "--gate", "40:go_on")
    ps = start(cluster, "ps", *arguments)
    first = start(cluster, "chief", *arguments)
    first.wait_for_step(40)
    first.process.send_signal(signal.SIGKILL)
    first.end()
    (tmp_path / "go_on").touch()
    second = start(cluster, "chief", *arguments)
    assert (second.end(), ps.end()) == (0, 0), second.text
    assert min(second.steps) > max(first.steps) - 1


def test_a_chief_that_comes_back_after_a_nan_restores_its_last_good_checkpoint(
    start, cluster_of
):
    cluster = cluster_of("chief", "ps")
    ps = start(cluster, "ps")
    first = start(cluster, "chief", "--nan_at", "50")
    assert first.end() == 1
    assert "NanLossDuringTrainingError" in first.text.splitlines()[-1]
    second = start(cluster, "chief")
    assert (second.end(), ps.end()) == (0, 0), second.text
    assert "the parameter servers are alive" not in second.text
    assert second.steps[0] < 50


def test_a_second_job_on_the_ps_of_a_live_one_is_refused_and_the_other_goes_on(
    start, cluster_of, tmp_path
):
    cluster = cluster_of("chief", "ps")
    arguments = ("--gate", "20:go_on")
    ps = start(cluster, "ps", *arguments)
    first = start(cluster, "chief", *arguments)
    first.wait_for_step(20)
    other = start(
        {**cluster_of("chief"), "ps": cluster["ps"]}, "chief", "--model_dir", "other"
    )
    assert other.end() == 1
    assert (
        "TF_CONFIG: cluster['ps'] is in use by another training, of the chief at "
        f"'{cluster['chief'][0]}' with the model_dir '{tmp_path}/model'; start parameter "
        "servers of your own, or end that training first\n"
    ) in other.text
    (tmp_path / "go_on").touch()
    assert (first.end(), ps.end()) == (0, 0), first.text
    assert first.steps == sorted(first.steps)


def test_a_ps_that_never_comes_is_named_at_the_deadline(start, cluster_of):
    cluster = cluster_of("chief", "worker", "ps")
    task = start(cluster, "chief", "--timeout_secs", "3")
    assert task.end() == 1
    assert task.text.splitlines()[-1].endswith(
        f"nobody answers for ps 0 at {cluster['ps'][0]}, after 3 s "
        "(session_creation_timeout_secs); is it started, and reachable from here under "
        "this address?"
    )


def test_a_chief_that_never_comes_is_named_at_the_deadline(start, cluster_of):
    cluster = cluster_of("chief", "worker", "ps")
    start(cluster, "ps").wait_until_it_listens(*cluster["ps"])
    worker = start(cluster, "worker", "--timeout_secs", "4")
    assert worker.end() == 1
    assert worker.text.splitlines()[-1].endswith(
        f"the model was not initialized by chief 0 at {cluster['chief'][0]} within 4 s "
        "(session_creation_timeout_secs); is it running?"
    )


def test_a_ps_without_any_trainer_gives_up_at_the_deadline(start, cluster_of):
    ps = start(cluster_of("chief", "ps"), "ps", "--timeout_secs", "2")
    assert ps.end() == 1
    assert ps.text.splitlines()[-1].endswith(
        "none of chief 0 has been there for 2 s (session_creation_timeout_secs), and "
        "the training has not ended; this ps gives up"
    )


def test_a_port_in_use_is_named(start, cluster_of):
    with socket.create_server(("", 0)) as taken:
        cluster = {
            "chief": [f"127.0.0.1:{taken.getsockname()[1]}"],
            **cluster_of("ps"),
        }
        chief = start(cluster, "chief")
        assert chief.end() == 1
    assert (
        f"TF_CONFIG: chief 0 cannot listen on '{cluster['chief'][0]}'"
    ) in chief.text.splitlines()[-1]
