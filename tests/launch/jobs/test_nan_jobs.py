"""Jobs whose loss becomes NaN, and what is then saved and named."""

import math
import re
from pathlib import Path

import pytest
import tensorflow as tf

_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"


def _weights(tmp_path):
    """Return step to weight of all checkpoints."""
    found = {}
    for path in tmp_path.glob("model/model.ckpt-*.index"):
        prefix = str(path.with_suffix(""))
        found[int(prefix.rpartition("-")[2])] = float(
            tf.train.load_checkpoint(prefix).get_tensor("weight")
        )
    return found


@pytest.mark.parametrize("options", [("--ps", "1"), ("--evaluator",)])
def test_a_checkpoint_that_a_nan_has_reached_is_not_named_as_good(
    launch, tmp_path, options
):
    """Of the hooks of a step TensorFlow's order is: the one that saves comes first."""
    job = launch(*options, _PROGRAM, "--nan_at", "10", "--save_steps", "1")
    assert job.end() == 1
    assert re.search(
        r"NanLossDuringTrainingError \(exit status 1\): not restarted, as a restart would "
        r"end the same way\n"
        r"(  .*\n)+"
        r"  The loss is NaN by step 1\d\. To try: a lower learning rate, ",
        job.text,
    )
    assert "restarting" not in job.text
    named = re.search(
        r"^newest good checkpoint: (\S+)\n"
        r"newer, but with NaN in 'weight': (\S+); move \2\.\* away, or training "
        r"goes on from it\n$",
        job.text,
        re.M,
    )
    good, bad = (int(path.rpartition("-")[2]) for path in named.groups())
    weights = _weights(tmp_path)
    assert {step for step, weight in weights.items() if math.isnan(weight)} == {bad}
    assert good == max(weights.keys() - {bad})
    for path in tmp_path.glob(f"model/model.ckpt-{bad}.*"):
        path.unlink()
    again = launch(*options, _PROGRAM, "--steps", "20")
    assert again.end() == 0, again.text
    steps = re.findall(r"^chief *\| step (\d+)$", again.text, re.M)
    assert good <= int(steps[0]) <= good + 1


def test_a_chief_does_not_save_the_nan_of_a_worker(launch, tmp_path):
    program = tmp_path / "nan_of_a_worker.py"
    program.write_text(_NAN_OF_A_WORKER)
    job = launch("--workers", "1", "--ps", "1", program)
    assert job.end() == 1
    assert (
        "estimator-runtime: worker 0 ended with NanLossDuringTrainingError (exit status "
        "1): not restarted, as a restart would end the same way"
    ) in job.text
    assert "\n  The loss is NaN by step 1" in job.text
    assert _weights(tmp_path) == {0: 0.0}
    assert job.text.endswith(f"newest good checkpoint: {tmp_path}/model/model.ckpt-0\n")


# The chief's step, whose own loss is good, ends when it is told to stop.
_NAN_OF_A_WORKER = """
import json, os, pathlib, time

import tensorflow as tf

from estimator_runtime.signals import request

v1 = tf.compat.v1
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
holds = pathlib.Path("holds")


def wait_until(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Hold(v1.train.SessionRunHook):
    def begin(self):
        self.step = v1.train.get_global_step()

    def after_run(self, context, values):
        if task == "chief" and context.session.run(self.step) >= 10:
            holds.touch()
            wait_until(request.is_requested)


def model_fn(features, labels, mode):
    weight = v1.get_variable("weight", initializer=0.0)
    loss = tf.square(weight - 1.0) * (float("nan") if task == "worker" else 1.0)
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


if task == "worker":
    wait_until(holds.exists)
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(
        model_fn, config=tf.estimator.RunConfig("model", save_checkpoints_steps=1000)
    ),
    tf.estimator.TrainSpec(input_fn, max_steps=1000, hooks=[Hold()]),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
"""
