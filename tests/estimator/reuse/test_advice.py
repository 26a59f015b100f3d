"""Who repeats calls that mostly build graphs is told once what would avoid it."""

import logging

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.estimator.reuse import advice

er.install()

tf1 = tf.compat.v1


@pytest.fixture
def clock(monkeypatch):
    """Return the list whose number is the time in seconds."""
    now = [0.0]
    monkeypatch.setattr(advice, "_clock", lambda: now[0])
    return now


@pytest.fixture
def estimator(clock, tmp_path):
    """Return a function that makes a trained Estimator; building takes `secs`."""

    def make(secs, **config):
        def model_fn(features, labels, mode):
            clock[0] += secs
            weight = tf1.get_variable("weight", initializer=0.0)
            return tf.estimator.EstimatorSpec(
                mode,
                predictions={"y": features * weight},
                loss=tf.reduce_mean(features * weight),
                train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
            )

        config = tf.estimator.RunConfig(tmp_path, **config)
        made = tf.estimator.Estimator(model_fn, config=config)
        made.train(lambda: data(clock, 0), steps=1)
        return made

    return make


def data(clock, secs):
    clock[0] += secs
    return tf.data.Dataset.from_tensors([1.0])


def said(caplog):
    return [
        r.getMessage() for r in caplog.records if "--reuse-graphs" in r.getMessage()
    ]


@pytest.mark.parametrize("call", ["evaluate", "predict"])
def test_the_third_call_that_mostly_builds_is_told_once(call, estimator, clock, caplog):
    caplog.set_level(logging.INFO)
    made = estimator(0.8)
    for times in range(1, 6):
        list(getattr(made, call)(lambda: data(clock, 0.2)))
        assert len(said(caplog)) == (times >= 3)
    assert said(caplog) == [
        f"{call} has called model_fn again, for 0.8 of its 1 s. If model_fn builds the "
        "same graph for the same inputs, RunConfig(reuse_graphs=True) or "
        "--reuse-graphs makes this about 5 times as fast"
    ]


@pytest.mark.parametrize(
    "secs, config, hooks",
    [
        (0.1, {}, []),  # of 0.3 s
        (0.8, {"reuse_graphs": False}, []),  # is the choice of the program
        (0.8, {"reuse_graphs": True}, []),
        (0.8, {}, [tf1.train.SessionRunHook()]),  # needs a graph of its own
    ],
)
def test_nothing_is_said_where_nothing_would_be_gained(
    secs, config, hooks, estimator, clock, caplog
):
    caplog.set_level(logging.INFO)
    made = estimator(secs, **config)
    for _ in range(4):
        list(made.predict(lambda: data(clock, 0.2), hooks=hooks))
    assert said(caplog) == []
