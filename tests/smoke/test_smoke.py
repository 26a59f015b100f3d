"""What every supported TensorFlow and Python must do: one model of each kind, trained.

The whole suite runs on the oldest and the newest TensorFlow; this file is what
`nox -s smoke` runs on those between.
"""

import os

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

FEATURES = np.linspace(-1, 1, 64, dtype=np.float32).reshape(32, 2)
LABELS = (FEATURES @ np.array([[1.0], [-2.0]], np.float32)) + 0.5


def input_fn():
    data = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, LABELS))
    return data.repeat().batch(32)


def serving_input_fn():
    features = {"x": tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")}
    return tf.estimator.export.ServingInputReceiver(features, features)


def model_fn(features, labels, mode):
    prediction = tf.compat.v1.layers.dense(features["x"], 1, name="line")
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": prediction})
    loss = tf.compat.v1.losses.mean_squared_error(labels, prediction)
    tf.compat.v1.summary.scalar("twice_the_loss", 2 * loss)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.AdamOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        eval_metric_ops={"mae": tf.compat.v1.metrics.mean_absolute_error(labels, prediction)},
    )  # fmt: skip


def predictions(estimator):
    return np.array(
        [each["y"] for each in estimator.predict(lambda: input_fn().take(1))]
    )


def reloaded(folder):
    """What the exported model answers, asked as any TensorFlow 2 program asks it."""
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    [answer] = serve(x=tf.constant(FEATURES)).values()
    return answer.numpy()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = tf.estimator.RunConfig(
        str(tmp_path_factory.mktemp("model")),
        tf_random_seed=1,
        save_checkpoints_steps=50,
    )
    estimator = tf.estimator.Estimator(model_fn, config=config)
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=150),
        tf.estimator.EvalSpec(
            input_fn,
            steps=1,
            exporters=tf.estimator.FinalExporter("final", serving_input_fn),
            start_delay_secs=0,
            throttle_secs=0,
        ),
    )
    return estimator


def test_train_and_evaluate_learns_the_line_and_evaluates_each_checkpoint(trained):
    assert trained.evaluate(input_fn, steps=1)["mae"] < 0.1
    state = tf.train.get_checkpoint_state(trained.model_dir)
    saved = [os.path.basename(path) for path in state.all_model_checkpoint_paths]
    assert saved == [f"model.ckpt-{step}" for step in (0, 50, 100, 150)]


def test_the_final_export_answers_as_the_estimator_does(trained):
    [folder] = tf.io.gfile.glob(f"{trained.model_dir}/export/final/*")
    np.testing.assert_allclose(
        reloaded(folder), predictions(trained), rtol=1e-6, atol=1e-6
    )


def test_a_canned_estimator_trains_and_its_export_answers_the_same(tmp_path):
    column = tf.feature_column.numeric_column("x", shape=[2])
    estimator = tf.estimator.DNNRegressor(
        [8], [column], model_dir=str(tmp_path), optimizer="Adagrad"
    )
    before = estimator.train(input_fn, steps=1).evaluate(input_fn, steps=1)["loss"]
    after = estimator.train(input_fn, steps=200).evaluate(input_fn, steps=1)["loss"]
    assert after < before
    # A regressor's default signature takes serialized examples.
    folder = estimator.export_saved_model(
        str(tmp_path / "export"),
        tf.estimator.export.build_parsing_serving_input_receiver_fn(
            tf.feature_column.make_parse_example_spec([column])
        ),
    )
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend(FEATURES[0])
    model = tf.saved_model.load(folder.decode())
    serve = model.signatures["serving_default"]
    [answer] = serve(tf.constant([example.SerializeToString()])).values()
    [expected, *_] = estimator.predict(lambda: input_fn().take(1))
    np.testing.assert_allclose(answer[0], expected["predictions"], rtol=1e-6, atol=1e-6)


def test_a_keras_model_trains_as_an_estimator(tmp_path):
    model = tf.keras.Sequential(
        [tf.keras.layers.Input([2], name="x"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), "mse")
    estimator = tf.keras.estimator.model_to_estimator(model, model_dir=str(tmp_path))
    assert (
        estimator.train(input_fn, steps=100).evaluate(input_fn, steps=1)["loss"] < 0.2
    )
