"""What an Estimator keeps is bounded, shared by threads and freed with it."""

import gc
import threading
import weakref

import numpy as np
import pytest

import estimator_runtime as er
from estimator_runtime.errors import ConfigError

er.install()

import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1


@pytest.fixture
def sessions(monkeypatch):
    """Return the list of the sessions that are created."""
    created, init = [], tf1.Session.__init__

    def creating(self, *args, **kwargs):
        created.append(weakref.ref(self))
        init(self, *args, **kwargs)

    monkeypatch.setattr(tf1.Session, "__init__", creating)
    return created


def wide(width):
    """Return an input_fn whose features have a static shape of their own."""
    x = np.ones((4, width), "f")
    return lambda: tf.data.Dataset.from_tensor_slices(({"x": x}, x[:, 0])).batch(2)


def test_four_models_are_kept_and_the_least_recently_used_one_goes(pair, linear):
    pair = pair(linear)
    pair.train(wide(1))
    for width in (1, 2, 3, 4, 1, 5):  # 5 takes the place of 2
        pair.kept.evaluate(wide(width))
    assert len(pair.calls) == 5
    pair.kept.evaluate(wide(1))
    assert len(pair.calls) == 5
    pair.kept.evaluate(wide(2))
    assert len(pair.calls) == 6


def test_other_params_are_another_graph(pair, rows):
    def model_fn(features, labels, mode, params):
        w = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
        predicted = w * params["factor"]["of"] * features["x"][:, 0]
        return tf.estimator.EstimatorSpec(
            mode,
            predictions=predicted,
            loss=tf.reduce_mean(predicted),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    pair = pair(model_fn, params={"factor": {"of": 1.0}})
    pair.train(rows())
    pair.assert_equal(rows())
    for estimator in (pair.stock, pair.kept):
        estimator._params["factor"]["of"] = 3.0
    pair.assert_equal(rows())
    assert pair.calls == ["eval", "infer"] * 2


def test_a_prediction_that_is_read_by_half_keeps_its_checkpoint(pair, linear, rows):
    pair = pair(linear)
    pair.train(rows())
    expected = [row["predicted"] for row in pair.stock.predict(rows())]
    half = pair.kept.predict(rows())
    found = [next(half)["predicted"]]
    pair.train(rows())
    pair.assert_equal(rows())  # with another session, as that one is in use
    found += [row["predicted"] for row in half]
    assert found == expected
    assert pair.calls == ["infer", "eval"]


def test_a_prediction_that_nobody_reads_on_gives_its_session_back(
    pair, linear, rows, sessions
):
    pair = pair(linear)
    pair.train(rows())
    list(pair.kept.predict(rows()))
    sessions.clear()
    for _ in range(5):
        half = pair.kept.predict(rows())
        next(half)
        half.close()
        dropped = pair.kept.predict(rows())
        next(dropped)
        del dropped
    assert sessions == []  # the rows are in memory
    pair.assert_equal(rows())


def test_two_threads_predict_and_evaluate_at_once(pair, linear, rows):
    pair = pair(linear)
    pair.train(rows())
    inputs = [rows(seed=seed) for seed in range(4)]
    metrics = [pair.stock.evaluate(each) for each in inputs]
    expected = [[r["predicted"] for r in pair.stock.predict(e)] for e in inputs]
    wrong = []

    def work(index):
        for _ in range(3):
            found = [r["predicted"] for r in pair.kept.predict(inputs[index])]
            if found != expected[index]:
                wrong.append(("predict", index, found))
            found = pair.kept.evaluate(inputs[index], name=str(index))
            if found != metrics[index]:
                wrong.append(("evaluate", index, found))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert sorted(pair.calls) == ["eval", "infer"]


def test_all_is_freed_with_the_estimator(linear, rows, tmp_path, sessions):
    graphs = []

    def model_fn(features, labels, mode):
        graphs.append(weakref.ref(tf1.get_default_graph()))
        return linear(features, labels, mode)

    config = er.RunConfig(tmp_path, reuse_graphs=True)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(rows(), steps=1)
    estimator.evaluate(rows())
    list(estimator.predict(rows()))
    gc.collect()
    assert len([each for each in (*graphs, *sessions) if each()]) >= 4
    del estimator
    gc.collect()
    assert [each for each in (*graphs, *sessions) if each()] == []


def test_the_environment_turns_it_on(linear, rows, tmp_path, monkeypatch):
    calls = []

    def model_fn(features, labels, mode):
        calls.append(mode)
        return linear(features, labels, mode)

    monkeypatch.setenv("ESTIMATOR_RUNTIME_REUSE_GRAPHS", "1")
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.train(rows(), steps=1)
    for _ in range(2):
        estimator.evaluate(rows())
    assert calls == ["train", "eval"]
    with pytest.raises(ConfigError, match="REUSE_GRAPHS is 'yes'; give 1"):
        monkeypatch.setenv("ESTIMATOR_RUNTIME_REUSE_GRAPHS", "yes")
        estimator.evaluate(rows())
