"""A graph that is kept takes over another checkpoint, as a new one would have it."""

import shutil

import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1


def test_the_newest_checkpoint_is_used(pair, linear, rows):
    pair = pair(linear)
    for step in (2, 4, 6):
        pair.train(rows())
        metrics, _ = pair.assert_equal(rows())
        assert metrics["global_step"] == step
    assert pair.calls == ["eval", "infer"]


def test_a_checkpoint_that_is_named_is_used(pair, linear, rows):
    pair = pair(linear)
    pair.train(rows())
    first = pair.stock.latest_checkpoint()
    pair.train(rows())
    for path, step in ((None, 4), (first, 2), (None, 4)):
        metrics, _ = pair.assert_equal(rows(), times=1, checkpoint_path=path)
        assert metrics["global_step"] == step
    assert pair.calls == ["eval", "infer"]


def test_another_checkpoint_of_the_same_name_is_used(pair, linear, rows):
    pair = pair(linear)
    pair.train(rows(seed=1))
    before, _ = pair.assert_equal(rows())
    shutil.rmtree(pair.stock.model_dir)
    pair.train(rows(seed=2))
    after, _ = pair.assert_equal(rows())
    assert before["global_step"] == after["global_step"]
    assert before["loss"] != after["loss"]
    assert pair.calls == ["eval", "infer"]


def test_before_the_first_checkpoint_each_call_builds_its_own_graph(
    pair, linear, rows, refusals
):
    pair = pair(linear, config={"tf_random_seed": 3})
    pair.assert_equal(rows())
    because = "builds a graph of its own, because there is no checkpoint"
    assert refusals == [f"evaluate {because}", f"predict {because}"]
    pair.train(rows())
    pair.assert_equal(rows())
    assert pair.calls == ["eval", "infer"] * 3


def test_warm_start_before_the_first_checkpoint(pair, linear, rows, tmp_path_factory):
    trained = tf.estimator.Estimator(linear, str(tmp_path_factory.mktemp("trained")))
    trained.train(rows(), steps=3)
    pair = pair(linear, warm_start_from=trained.model_dir)
    metrics, _ = pair.assert_equal(rows())
    assert metrics["loss"] == trained.evaluate(rows())["loss"]
    pair.train(rows())
    pair.assert_equal(rows())


def model_of(size):
    """Return a model_fn whose variable has a size that a list holds."""

    def model_fn(features, labels, mode):
        w = tf1.get_variable("w", [size[0]], initializer=tf1.ones_initializer())
        predicted = tf.reduce_sum(w) * features["x"][:, 0]
        return tf.estimator.EstimatorSpec(
            mode,
            predictions=predicted,
            loss=tf.reduce_mean(predicted),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    return model_fn


def test_a_checkpoint_of_other_shapes_is_of_another_graph(pair, rows, refusals):
    size = [2]
    pair = pair(model_of(size))
    pair.train(rows())
    pair.assert_equal(rows())
    shutil.rmtree(pair.stock.model_dir)
    size[0] = 3
    pair.train(rows())
    pair.assert_equal(rows())
    assert pair.calls == ["eval", "infer"] * 2
    assert refusals == []


def test_a_checkpoint_that_lacks_a_variable_has_tensorflows_error(
    pair, linear, rows, refusals
):
    other = model_of([2])
    is_other = [False]

    def model_fn(features, labels, mode):
        return (other if is_other[0] else linear)(features, labels, mode)

    pair = pair(model_fn)
    pair.train(rows())
    is_other[0] = True
    for estimator in (pair.stock, pair.kept):
        with pytest.raises(tf.errors.NotFoundError, match="Key w not found"):
            estimator.evaluate(rows())
        with pytest.raises(tf.errors.NotFoundError, match="Key w not found"):
            next(estimator.predict(rows()))
    assert len(refusals) == 2
    assert "cannot be restored into the kept graph" in refusals[0]
