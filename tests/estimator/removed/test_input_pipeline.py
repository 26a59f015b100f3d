"""An input that is saved beside the model, and goes on where it was.

On TensorFlow 2.15 its own hook is used, on newer ones that of this package.
"""

import pathlib
import signal
import types

import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

Hook = tf.data.experimental.CheckpointInputPipelineHook


def input_fn():
    return tf.data.Dataset.range(1000).map(lambda i: ({"x": [i]}, i)).batch(2)


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = weight * tf.cast(features["x"][0, 0], tf.float32)
    train_op = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Reading(tf.compat.v1.train.SessionRunHook):
    """Notes the first label of each step's batch, and may fail after some steps."""

    def __init__(self, fails_after=None):
        self.read = []
        self._fails_after = fails_after

    def begin(self):
        operations = tf.compat.v1.get_default_graph().get_operations()
        [batch] = [each for each in operations if each.type == "IteratorGetNext"]
        self._labels = batch.outputs[1]

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs(self._labels)

    def after_run(self, run_context, run_values):
        self.read.append(int(run_values.results[0]))
        if len(self.read) == self._fails_after:
            raise RuntimeError("the power has failed")


def estimator(folder, **settings):
    config = tf.estimator.RunConfig(
        str(folder), **{"save_checkpoints_steps": 3, "keep_checkpoint_max": 2, **settings}
    )  # fmt: skip
    return tf.estimator.Estimator(model_fn, config=config)


def train(folder, steps, fails_after=None, **settings):
    trained = estimator(folder, **settings)
    reading = Reading(fails_after)
    trained.train(input_fn, steps=steps, hooks=[Hook(trained), reading])
    return reading.read


def steps_of(name, folder):
    paths = pathlib.Path(folder).glob(f"{name}-*.index")
    return sorted(int(each.stem.rpartition("-")[2]) for each in paths)


def test_a_training_that_is_resumed_reads_on(tmp_path):
    assert train(tmp_path, 7) == [0, 2, 4, 6, 8, 10, 12]
    assert train(tmp_path, 3) == [14, 16, 18]
    assert train(tmp_path, 2) == [20, 22]


def test_a_training_that_failed_reads_on_from_its_last_checkpoint(tmp_path):
    with pytest.raises(RuntimeError, match="power"):
        train(tmp_path, 7, fails_after=5)
    assert estimator(tmp_path).get_variable_value("global_step") == 3
    assert train(tmp_path, 2) == [6, 8]


def test_fused_steps_are_read_on_from_too(tmp_path):
    assert train(tmp_path, 7, steps_per_run=3) == [0, 2, 4, 6, 8, 10, 12]
    assert train(tmp_path, 2, steps_per_run=3) == [14, 16]


def test_the_files_are_those_of_tensorflow_2_15(tmp_path):
    train(tmp_path, 7)
    assert steps_of("input.ckpt", tmp_path) == [0, 3, 6, 7]
    assert steps_of("model.ckpt", tmp_path) == [6, 7]
    assert sorted(each.name for each in tmp_path.glob("*ckpt-7*")) == [
        "input.ckpt-7.data-00000-of-00001", "input.ckpt-7.index", "input.ckpt-7.meta",
        "model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index", "model.ckpt-7.meta",
    ]  # fmt: skip
    newest = tf.train.latest_checkpoint(str(tmp_path), "checkpoint_input")
    assert newest == str(tmp_path / "input.ckpt-7")
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-7")


def test_the_evaluation_reads_from_the_start(tmp_path):
    train(tmp_path, 3)
    reading = Reading()

    def evaluated(features, labels, mode):
        return tf.estimator.EstimatorSpec(mode, loss=tf.constant(0.0))

    tf.estimator.Estimator(evaluated, str(tmp_path)).evaluate(
        input_fn, steps=2, hooks=[reading]
    )
    assert reading.read == [0, 2]


@pytest.mark.parametrize(
    ("task_type", "index", "name"),
    [("chief", 0, "input_chief_0"), ("worker", 1, "input_worker_1")],
)
def test_each_task_of_a_cluster_has_its_own_files(tmp_path, task_type, index, name):
    config = types.SimpleNamespace(
        num_worker_replicas=3, task_type=task_type, task_id=index,
        save_checkpoints_steps=2, save_checkpoints_secs=None,
    )  # fmt: skip
    for expected in ([0, 1, 2], [3, 4, 5]):
        with tf.Graph().as_default():
            data = tf.data.Dataset.range(100)
            batch = tf.compat.v1.data.make_one_shot_iterator(data).get_next()
            step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
            hook = Hook(types.SimpleNamespace(_config=config, model_dir=str(tmp_path)))
            with estimator_runtime.MonitoredTrainingSession(hooks=[hook]) as session:
                assert [session.run([batch, step])[0] for _ in range(3)] == expected
    assert steps_of(f"{name}.ckpt", tmp_path) == [0, 1, 2, 3]
    assert (tmp_path / f"checkpoint_{name}").exists()


def test_state_outside_of_the_input_is_refused_or_left_out(tmp_path):
    def random_input():
        return input_fn().map(
            lambda x, y: (x, y + tf.random.uniform([], 0, 2, tf.int64))
        )

    trained = estimator(tmp_path)
    with pytest.raises(tf.errors.FailedPreconditionError):
        trained.train(random_input, steps=2, hooks=[Hook(trained)])
    for policy in ("ignore", "warn", tf.data.experimental.ExternalStatePolicy.IGNORE):
        trained.train(random_input, steps=2, hooks=[Hook(trained, policy)])


def test_a_training_that_is_told_to_stop_reads_on(run_script, tmp_path):
    program = f"""
import os, signal, sys
import tensorflow as tf
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from test_input_pipeline import Hook, Reading, estimator, input_fn

class Stopped(Reading):
    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)
        print(self.read[-1], flush=True)
        if len(self.read) == 5:
            os.kill(os.getpid(), signal.SIGTERM)

trained = estimator({str(tmp_path)!r})
trained.train(input_fn, max_steps=8, hooks=[Hook(trained), Stopped()])
"""
    read = []
    for status in (128 + signal.SIGTERM, 0):
        result = run_script("/dev/stdin", text=program)
        assert result.returncode == status, result.stderr
        read.append([int(each) for each in result.stdout.split()])
    assert read == [[0, 2, 4, 6, 8], [10, 12, 14]]
