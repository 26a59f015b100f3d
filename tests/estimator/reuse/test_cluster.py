"""The evaluator of a cluster of processes reuses its graph."""

import re
import subprocess
import sys

PROGRAM = """
import json, os, time
import tensorflow as tf

tf.compat.v1.logging.set_verbosity("INFO")
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]


def model_fn(features, labels, mode):
    print(f"{task} builds {mode}", flush=True)
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean(tf.square(weight - features))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Evaluated(tf.estimator.SessionRunHook):
    '''Waits at step 5 until the evaluator has seen a checkpoint.'''

    def after_run(self, run_context, run_values):
        self.steps = getattr(self, "steps", 0) + 1
        deadline = time.monotonic() + 60
        while self.steps == 5 and time.monotonic() < deadline:
            if os.path.exists("model/eval"):
                break
            time.sleep(0.1)


def input_fn():
    return tf.data.Dataset.from_tensors(1.0).repeat(100)


config = tf.estimator.RunConfig("model", save_checkpoints_steps=4)
metrics = tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(input_fn, max_steps=8, hooks=[Evaluated()]),
    tf.estimator.EvalSpec(input_fn, steps=3, start_delay_secs=0, throttle_secs=0),
)
"""


def test_the_evaluator_builds_its_graph_once(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "estimator_runtime", "run", "--ps", "1"),
            *("--evaluator", "--reuse-graphs", "--verbose", "train.py"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("evaluator builds eval") == 1
    saved = re.findall(r"Saving dict for global step (\d+)", done.stdout)
    assert len(saved) >= 2, done.stdout
    assert saved[-1] == "8"
    assert "reuse_graphs:" not in done.stdout
