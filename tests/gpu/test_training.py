"""Training on a GPU: it is used, and gives the bits of stock."""

import contextlib
import gzip
import pathlib

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402 (after install, as a program would)
from tensorflow.python.framework import config as framework_config  # noqa: E402
from tensorflow.python.training import monitored_session  # noqa: E402
from tensorflow_estimator.python.estimator import estimator as frozen  # noqa: E402

tf1 = tf.compat.v1
DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "data" / "digits.csv.gz"
TRAINED = 1500


@pytest.fixture(scope="module", autouse=True)
def _deterministic():
    tf.config.experimental.enable_op_determinism()
    yield
    framework_config.disable_op_determinism()


@pytest.fixture
def config(tmp_path):
    """Return a function that makes a RunConfig with a folder of its own."""

    def config(name, **arguments):
        given = {"save_checkpoints_steps": 250, **arguments}
        return tf.estimator.RunConfig(tmp_path / name, tf_random_seed=1, **given)

    return config


def digits(part):
    with gzip.open(DIGITS, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int32)[part]
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    return tf.data.Dataset.from_tensor_slices((images, table[:, 64]))


def training_data():
    return digits(slice(TRAINED)).repeat().batch(64)


def held_out():
    return digits(slice(TRAINED, None)).batch(64)


def cnn(features, labels, mode):
    """Two convolutions with dropout and batch normalization."""
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    maps = tf1.layers.conv2d(features, 16, 3, padding="same", activation=tf.nn.relu)
    maps = tf1.layers.batch_normalization(maps, training=is_training)
    maps = tf1.layers.max_pooling2d(maps, 2, 2)
    maps = tf1.layers.conv2d(maps, 32, 3, padding="same", activation=tf.nn.relu)
    net = tf1.layers.dropout(tf1.layers.flatten(maps), 0.2, training=is_training)
    logits = tf1.layers.dense(net, 10)
    digit = tf.argmax(logits, axis=1, output_type=tf.int32)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf1.metrics.accuracy(labels, digit)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        train_op = tf1.train.AdamOptimizer(0.001).minimize(
            loss, tf1.train.get_global_step()
        )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


@contextlib.contextmanager
def stock_sessions():
    ours = frozen.training.MonitoredTrainingSession
    frozen.training.MonitoredTrainingSession = (
        monitored_session.MonitoredTrainingSession
    )
    try:
        yield
    finally:
        frozen.training.MonitoredTrainingSession = ours


def variables(folder, step=None):
    path = f"{folder}/model.ckpt-{step}" if step else tf.train.latest_checkpoint(folder)
    reader = tf.train.load_checkpoint(path)
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


class PlacementHook(tf1.train.SessionRunHook):
    """Collects where each op of the first step has run."""

    def before_run(self, run_context):
        options = tf1.RunOptions(output_partition_graphs=True)
        return tf1.train.SessionRunArgs(None, options=options)

    def after_run(self, run_context, run_values):
        self.devices = {
            node.op: node.device.rpartition(":")[0].rpartition(":")[2]
            for graph in run_values.run_metadata.partition_graphs
            for node in graph.node
        }


def test_the_digits_cnn_trains_on_the_device_as_well_as_on_the_cpu(config, device):
    placement = PlacementHook()
    estimator = tf.estimator.Estimator(cnn, config=config("device"))
    estimator.train(training_data, steps=1, hooks=[placement])
    first = estimator.evaluate(held_out)
    estimator.train(training_data, steps=499)
    last = estimator.evaluate(held_out)
    only_cpu = config("cpu", session_config=tf1.ConfigProto(device_count={"GPU": 0}))
    reference = tf.estimator.Estimator(cnn, config=only_cpu)
    reference.train(training_data, steps=500)
    convolutions = {k: v for k, v in placement.devices.items() if "Conv2D" in k}
    assert set(convolutions.values()) == {device}
    assert last["loss"] < first["loss"] / 4
    expected = reference.evaluate(held_out)["accuracy"]
    assert last["accuracy"] == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("steps_per_run", [1, 10])
def test_500_steps_give_the_bits_of_stock(config, steps_per_run):
    with stock_sessions():
        stock = tf.estimator.Estimator(cnn, config=config("stock"))
        stock.train(training_data, steps=500)
    chosen = config("ours", steps_per_run=steps_per_run)
    ours = tf.estimator.Estimator(cnn, config=chosen)
    ours.train(training_data, steps=500)
    assert_equal(variables(ours.model_dir), variables(stock.model_dir))
    # Taken while steps went on.
    assert_equal(variables(ours.model_dir, 250), variables(stock.model_dir, 250))


def test_kept_graphs_evaluate_and_predict_as_fresh_ones(config):
    fresh = tf.estimator.Estimator(cnn, config=config("m", reuse_graphs=False))
    kept = tf.estimator.Estimator(cnn, config=config("m", reuse_graphs=True))
    for _ in range(3):
        kept.train(training_data, steps=20)
        assert kept.evaluate(held_out) == fresh.evaluate(held_out)
        pairs = zip(kept.predict(held_out), fresh.predict(held_out), strict=True)
        for ours, expected in pairs:
            np.testing.assert_array_equal(ours["logits"], expected["logits"])


def test_a_checkpoint_taken_between_steps_has_the_values_of_its_step(tmp_path):
    live = {}

    class Records(tf1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            saved = {v.op.name: v for v in tf1.global_variables()}
            values = run_context.session.run(saved)
            live[values["global_step"]] = values

    with tf.Graph().as_default():
        tf1.set_random_seed(1)
        images, labels = tf1.data.make_one_shot_iterator(training_data()).get_next()
        tf1.train.create_global_step()
        spec = cnn(images, labels, tf.estimator.ModeKeys.TRAIN)
        stop = tf1.train.StopAtStepHook(last_step=60)
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            hooks=[Records(), stop],
            save_checkpoint_steps=7,
        ) as session:
            while not session.should_stop():
                session.run(spec.train_op)
    state = tf.train.get_checkpoint_state(str(tmp_path))
    steps = [int(p.rpartition("-")[2]) for p in state.all_model_checkpoint_paths]
    assert len(steps) == 5
    for step in steps:
        assert_equal(variables(tmp_path, step), live[step])


def test_a_mirrored_strategy_trains_on_all_there_is(config, device):
    devices = [each.name for each in tf.config.list_logical_devices(device)]
    strategy = tf.distribute.MirroredStrategy(devices)
    estimator = tf.estimator.Estimator(
        cnn, config=config("mirrored", train_distribute=strategy)
    )
    estimator.train(training_data, steps=200)
    assert estimator.evaluate(held_out)["accuracy"] > 0.8


def test_mixed_precision_trains(config, device):
    if device == "CPU":
        pytest.skip("the rewrite to float16 is for GPUs")

    def model_fn(features, labels, mode):
        with pytest.MonkeyPatch.context() as patch:
            adam = tf1.train.AdamOptimizer(0.001)
            rewrite = tf1.train.experimental.enable_mixed_precision_graph_rewrite
            wrapped = rewrite(adam)
            patch.setattr(tf1.train, "AdamOptimizer", lambda _: wrapped)
            return cnn(features, labels, mode)

    try:
        estimator = tf.estimator.Estimator(model_fn, config=config("mixed"))
        estimator.train(training_data, steps=300)
        assert estimator.evaluate(held_out)["accuracy"] > 0.8
    finally:
        tf1.train.experimental.disable_mixed_precision_graph_rewrite()
