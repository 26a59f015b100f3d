"""What needs a graph of its own has it, with the same results, and says so once."""

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
OWN = "builds a graph of its own, because"


class Counter(tf.estimator.SessionRunHook):
    """Counts the runs of a session."""

    def __init__(self):
        self.runs = 0

    def after_run(self, run_context, run_values):
        self.runs += 1


def spec(mode, predicted, **kwargs):
    """Return an EstimatorSpec whose loss is the mean prediction."""
    return tf.estimator.EstimatorSpec(
        mode,
        predictions={"y": predicted},
        loss=tf.reduce_mean(predicted),
        train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        **kwargs,
    )


def weighted(x):
    return tf.reduce_sum(x, 1) * tf1.get_variable("w", [])


def test_hooks_of_the_caller_see_the_session_of_the_model(pair, linear, rows, refusals):
    pair = pair(linear)
    pair.train(rows())
    counter = Counter()
    for _ in range(2):
        pair.kept.evaluate(rows(), hooks=[counter])
        list(pair.kept.predict(rows(), hooks=[counter]))
    assert counter.runs == 4 * 3
    assert refusals == [
        f"{call} {OWN} it is given hooks" for call in ("evaluate", "predict")
    ]
    assert pair.calls == ["eval", "infer"] * 2
    with pytest.raises(TypeError, match="Hooks must be a SessionRunHook"):
        pair.kept.evaluate(rows(), hooks=["none"])


def test_hooks_of_the_model(pair, rows, refusals):
    counter = Counter()

    def model_fn(features, labels, mode):
        return spec(
            mode,
            weighted(features["x"]),
            evaluation_hooks=[counter],
            prediction_hooks=[counter],
        )

    pair = pair(model_fn)
    pair.train(rows())
    pair.assert_equal(rows())
    assert counter.runs == 3 * 2 * 3
    assert refusals == [
        f"evaluate {OWN} its EstimatorSpec has evaluation_hooks",
        f"predict {OWN} its EstimatorSpec has prediction_hooks",
    ]
    # One call each to find out.
    assert sorted(pair.calls) == ["eval"] * 3 + ["infer"] * 3


@pytest.mark.parametrize(
    "part", ["init_fn", "local_init_op", "ready_op", "ready_for_local_init_op"]
)
def test_parts_of_a_scaffold(pair, rows, refusals, part):
    def model_fn(features, labels, mode):
        predicted = weighted(features["x"])
        parts = {
            "init_fn": lambda scaffold, session: None,
            "local_init_op": tf.no_op(),
            "ready_op": tf1.report_uninitialized_variables(),
            "ready_for_local_init_op": tf1.report_uninitialized_variables(
                tf1.global_variables()
            ),
        }
        scaffold = (
            None if mode == "train" else tf1.train.Scaffold(**{part: parts[part]})
        )
        return spec(mode, predicted, scaffold=scaffold)

    pair = pair(model_fn)
    pair.train(rows())
    pair.assert_equal(rows())
    assert refusals == [
        f"evaluate {OWN} its Scaffold has a {part}",
        f"predict {OWN} its Scaffold has a {part}",
    ]


def test_a_tensor_of_the_inputs_that_model_fn_takes_another_way(pair, refusals):
    x = np.arange(8, dtype="f").reshape(4, 2)
    taken = {}

    def input_fn():
        dataset = tf.data.Dataset.from_tensor_slices((x, x[:, 0])).batch(2)
        features, labels = tf1.data.make_one_shot_iterator(dataset).get_next()
        taken["labels"] = labels
        return {"x": features}, labels

    def model_fn(features, labels, mode):
        return spec(mode, weighted(features["x"]) + taken["labels"])

    pair = pair(model_fn)
    pair.train(input_fn)
    pair.assert_equal(input_fn)
    assert len(refusals) == 2
    assert refusals[0].startswith(
        f"evaluate {OWN} a graph with fed inputs cannot be built"
    )


@pytest.mark.parametrize(
    "case", ["variable", "step", "array", "resource", "collection"]
)
def test_inputs_that_cannot_be_fed(pair, refusals, case):
    x = np.arange(8, dtype="f").reshape(4, 2)

    def input_fn():
        dataset = tf.data.Dataset.from_tensor_slices(x).batch(2)
        features = {"x": tf1.data.make_one_shot_iterator(dataset).get_next()}
        if case == "variable":
            tf1.get_variable("of_input_fn", [])
        if case == "step":
            features["x"] *= tf.cast(tf1.train.get_global_step(), tf.float32)
        if case == "collection":
            tf1.add_to_collection("of_input_fn", features["x"])
        if case == "array":
            features["more"] = np.zeros(3)
        if case == "resource":
            features["more"] = (
                tf1.get_default_graph().get_collection("global_step")[0].handle
            )
        return features, None

    def model_fn(features, mode):
        return spec(mode, weighted(features["x"]))

    reason = {
        "variable": "input_fn makes variables",
        "step": "input_fn uses the global step",
        "array": "input_fn returns a ndarray, which cannot be fed",
        "collection": "input_fn adds to the collection 'of_input_fn', which model_fn "
        "may read",
        "resource": "input_fn returns 'global_step:0', which cannot be fed",
    }[case]
    pair = pair(model_fn, params=None)
    pair.train(input_fn)
    pair.assert_equal(input_fn)
    assert refusals == [f"evaluate {OWN} {reason}", f"predict {OWN} {reason}"]


def test_a_metric_of_a_reserved_name_has_tensorflows_error(pair, rows):
    def model_fn(features, labels, mode):
        predicted = weighted(features["x"])
        metrics = {"global_step": tf1.metrics.mean(predicted)}
        return spec(mode, predicted, eval_metric_ops=metrics)

    pair = pair(model_fn)
    pair.train(rows())
    for estimator in (pair.stock, pair.kept):
        with pytest.raises(ValueError, match="`global_step` is not allowed"):
            estimator.evaluate(rows())


def test_an_error_of_model_fn_is_raised(pair, rows):
    def model_fn(features, labels, mode):
        if mode != "train":
            raise KeyError("other")
        return spec(mode, weighted(features["x"]))

    pair = pair(model_fn)
    pair.train(rows())
    with pytest.raises(KeyError, match="other"):
        pair.kept.evaluate(rows())
    with pytest.raises(KeyError, match="other"):
        next(pair.kept.predict(rows()))


def test_an_error_of_a_batch_is_raised_and_the_next_call_is_sound(pair, rows):
    fails = [False]

    def model_fn(features, labels, mode):
        def check(x):
            if fails[0]:
                raise ValueError("a bad batch")
            return x

        x = tf.numpy_function(check, [features["x"]], tf.float32)
        x.set_shape([None, 3])
        return spec(mode, weighted(x))

    pair = pair(model_fn)
    pair.train(rows())
    pair.assert_equal(rows())
    fails[0] = True
    for estimator in (pair.stock, pair.kept):
        with pytest.raises(tf.errors.OpError, match="a bad batch"):
            estimator.evaluate(rows())
        with pytest.raises(tf.errors.OpError, match="a bad batch"):
            next(estimator.predict(rows()))
    fails[0] = False
    pair.assert_equal(rows())


def test_an_estimator_of_a_class_of_its_own(linear, rows, tmp_path, refusals):
    class Own(tf.estimator.Estimator):
        def _assert_members_are_not_overridden(self):
            pass

        def _call_model_fn(self, *args, **kwargs):
            self.called = True
            return super()._call_model_fn(*args, **kwargs)

    own = Own(linear, config=er.RunConfig(tmp_path, reuse_graphs=True))
    own.train(rows(), steps=1)
    own.called = False
    own.evaluate(rows())
    assert own.called
    assert refusals == [f"evaluate {OWN} Own has a _call_model_fn of its own"]


def test_a_tpu_estimator(rows, tmp_path, refusals):
    def model_fn(features, labels, mode, params):
        predicted = weighted(features["x"])
        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode,
            predictions={"y": predicted},
            loss=tf.reduce_mean(predicted),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    config = tf1.estimator.tpu.RunConfig(model_dir=str(tmp_path))
    estimator = tf1.estimator.tpu.TPUEstimator(
        model_fn, config=config, use_tpu=False, train_batch_size=4, eval_batch_size=4
    )

    def input_fn(params):
        return rows()()

    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("ESTIMATOR_RUNTIME_REUSE_GRAPHS", "1")
        estimator.train(input_fn, steps=1)
        estimator.evaluate(input_fn, steps=1)
        assert refusals == [
            f"evaluate {OWN} TPUEstimator has a _call_input_fn of its own"
        ]


def test_an_evaluation_with_a_strategy(pair, linear, rows, refusals):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    pair = pair(linear, config={"eval_distribute": strategy})
    pair.train(rows())
    assert pair.kept.evaluate(rows()) == pair.stock.evaluate(rows())
    assert refusals == [f"evaluate {OWN} it has a strategy"]
