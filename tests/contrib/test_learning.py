"""Estimator, Experiment and learn_runner of tf.contrib.learn train and evaluate."""

import os

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib import predictor
from estimator_runtime.contrib.learning import estimator as learn_estimator
from estimator_runtime.contrib.learning import experiment
from estimator_runtime.contrib.learning.hparams import HParams
from estimator_runtime.errors import ConfigError, ConfigTypeError

estimator_runtime.install()
tf1 = tf.compat.v1

_X = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
_Y = 2.0 * _X


def _input():
    return tf.data.Dataset.from_tensors((_X, _Y)).repeat()


def _model(features, targets, mode, params):
    """A line through 0, with the features and labels that are not called so."""
    slope = tf1.get_variable("slope", [], initializer=tf1.zeros_initializer())
    predictions = slope * features
    loss = train_op = None
    if mode != learn_estimator.LearnModeKeys.INFER:
        loss = tf.reduce_mean(tf.square(predictions - targets))
        train_op = tf1.train.GradientDescentOptimizer(params["rate"]).minimize(
            loss, tf1.train.get_global_step()
        )
    return predictions, loss, train_op


def _estimator(folder, model=_model):
    config = tf.estimator.RunConfig(save_checkpoints_steps=2)
    return learn_estimator.LearnEstimator(
        model, os.fspath(folder), config, params={"rate": 0.0625}
    )


def _experiment(folder, **kwargs):
    return experiment.Experiment(
        _estimator(folder), _input, _input, train_steps=6, eval_steps=1, **kwargs
    )


def _slopes(steps):
    """Return the slope after each number of steps of gradient descent."""
    slope = np.float64(0.0)
    for _ in range(steps):
        slope -= 0.0625 * 2 * np.mean(_X * (slope * _X - _Y))
    return slope


def test_a_model_function_of_a_tuple_trains_evaluates_and_predicts(tmp_path):
    trained = _estimator(tmp_path).fit(input_fn=_input, steps=3)
    slope = _slopes(3)
    assert trained.get_variable_value("slope") == pytest.approx(slope)
    metrics = trained.evaluate(
        input_fn=_input,
        steps=2,
        metrics={"error": learn_estimator.MetricSpec(_mean_error)},
    )
    assert metrics == pytest.approx(
        {
            "loss": np.mean(np.square(slope * _X - _Y)),
            "error": np.mean(np.abs(slope * _X - _Y)),
            "global_step": 3,
        }
    )
    predicted = trained.predict(input_fn=lambda: tf.data.Dataset.from_tensors(_X))
    np.testing.assert_allclose(list(predicted), slope * _X, rtol=1e-6)


def _mean_error(predictions, targets):
    return tf1.metrics.mean(tf.abs(predictions - targets))


def test_a_metric_with_other_names_takes_predictions_first(tmp_path):
    trained = _estimator(tmp_path).fit(input_fn=_input, steps=1)
    metrics = {"bias": learn_estimator.MetricSpec(lambda p, t: tf1.metrics.mean(p - t))}
    found = trained.evaluate(input_fn=_input, steps=1, metrics=metrics)
    assert found["bias"] == pytest.approx(np.mean(_slopes(1) * _X - _Y))


def test_metrics_of_one_evaluation_are_not_those_of_the_next(tmp_path):
    trained = _estimator(tmp_path).fit(input_fn=_input, steps=1)
    metrics = {"error": learn_estimator.MetricSpec(_mean_error)}
    assert "error" in trained.evaluate(input_fn=_input, steps=1, metrics=metrics)
    assert "error" not in trained.evaluate(input_fn=_input, steps=1)


def test_output_alternatives_are_exported_by_their_names():
    with tf1.Graph().as_default():
        value = tf1.constant([1.0])
        ops = learn_estimator.ModelFnOps(
            "infer",
            predictions={"x": value},
            output_alternatives={
                "one": (learn_estimator.ProblemType.LINEAR_REGRESSION, {"a": value}),
                "two": (None, {"b": value}),
            },
        )
        outputs = ops.estimator_spec("two").export_outputs
        assert {key: list(each.outputs) for key, each in outputs.items()} == {
            "one": ["a"],
            "two": ["b"],
            "serving_default": ["b"],
        }
        with pytest.raises(ConfigError, match="'one', 'two'; choose"):
            ops.estimator_spec()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda each: each.fit(_X, _Y), "give input_fn"),
        (lambda each: each.predict(_X), "give input_fn"),
        (lambda each: each.fit(input_fn=_input, monitors=["x"]), "'x' is no Session"),
    ],
)
def test_what_is_gone_says_what_to_use(tmp_path, call, text):
    with pytest.raises(ConfigTypeError, match=text):
        call(_estimator(tmp_path))


class _Evaluations(tf1.train.SessionRunHook):
    def __init__(self):
        self.steps = []

    def end(self, session):
        self.steps.append(int(session.run(tf1.train.get_global_step())))


@pytest.mark.parametrize(
    ("frequency", "steps"), [(0, [6]), (None, [2, 4, 6, 6]), (4, [4, 6])]
)
def test_an_experiment_evaluates_as_often_as_asked(tmp_path, frequency, steps):
    seen = _Evaluations()
    metrics, exported = _experiment(
        tmp_path, min_eval_frequency=frequency, eval_hooks=[seen]
    ).train_and_evaluate()
    assert seen.steps == steps
    assert metrics["global_step"] == 6
    assert metrics["loss"] == pytest.approx(np.mean(np.square(_slopes(6) * _X - _Y)))
    assert exported == []


def test_an_experiment_trains_and_evaluates_by_turns(tmp_path):
    seen = _Evaluations()
    metrics, _ = _experiment(
        tmp_path, eval_hooks=[seen], train_steps_per_iteration=4
    ).continuous_train_and_eval()
    assert seen.steps == [4, 6]
    assert metrics["global_step"] == 6


def test_a_strategy_exports_and_keeps_the_newest(tmp_path):
    def serving_input_fn():
        x = tf1.placeholder(tf.float32, [None, 1])
        return experiment.InputFnOps(x, None, x)

    strategy = experiment.make_export_strategy(serving_input_fn, exports_to_keep=1)
    each = _experiment(tmp_path, export_strategies=strategy)
    (tmp_path / "export" / "Servo" / "17").mkdir(parents=True)
    _, (path,) = each.train_and_evaluate()
    path = tf.compat.as_str(path)
    assert os.listdir(tmp_path / "export" / "Servo") == [os.path.basename(path)]
    with tf1.Session(graph=tf1.Graph()) as session:
        model = tf1.saved_model.load(session, ["serve"], path)
        signature = model.signature_def["serving_default"]
        (output,) = signature.outputs.values()
        (given,) = signature.inputs.values()
        values = session.run(output.name, {given.name: _X})
    np.testing.assert_allclose(values, _slopes(6) * _X, rtol=1e-6)


@pytest.mark.parametrize("kind", [dict, HParams])
def test_an_export_from_a_reused_graph_has_the_hyperparameters_of_its_time(
    tmp_path, kind
):
    def model(features, targets, mode, params):
        given = params if kind is dict else params.values()
        predictions, loss, train_op = _model(features, targets, mode, {"rate": 0.0625})
        return predictions * given["scale"], loss, train_op

    def serving_input_fn():
        x = tf1.placeholder(tf.float32, [None, 1])
        return tf.estimator.export.TensorServingInputReceiver(x, x)

    params = kind(scale=1.0)
    config = estimator_runtime.RunConfig(reuse_graphs=True)
    learned = learn_estimator.LearnEstimator(
        model, os.fspath(tmp_path / "model"), config, params=params
    ).fit(input_fn=_input, steps=1)
    exported = []
    for scale in (1.0, 10.0):
        if kind is dict:
            params["scale"] = scale
        else:
            params.scale = scale
        path = learned.export_saved_model(
            os.fspath(tmp_path / "export"), serving_input_fn, experimental_mode="infer"
        )
        run = predictor.from_saved_model(tf.compat.as_str(path))
        exported.append(run({"input": _X})["output"][1, 0])
    assert exported == pytest.approx([_slopes(1), 10 * _slopes(1)])


def test_learn_runner_calls_the_schedule_of_an_experiment(tmp_path):
    made = []

    def experiment_fn(config, params):
        made.append((config.model_dir, params))
        return _experiment(tmp_path)

    config = tf.estimator.RunConfig(model_dir=os.fspath(tmp_path))
    metrics, _ = experiment.run(experiment_fn, run_config=config, hparams={"a": 1})
    assert made == [(os.fspath(tmp_path), {"a": 1})]
    assert metrics["global_step"] == 6
    result = experiment.run(
        lambda output_dir: _experiment(tmp_path), "folder", "evaluate"
    )
    assert result["global_step"] == 6


def test_an_export_function_gets_what_it_has_parameters_for():
    def old(estimator, base):
        return estimator, base

    def new(estimator, base, strip_default_attrs, eval_result, checkpoint_path):
        return estimator, base, checkpoint_path, eval_result, strip_default_attrs

    exported = [
        experiment.ExportStrategy("name", each, True).export("e", "base", "c", {"a": 1})
        for each in (old, new)
    ]
    assert exported == [("e", "base"), ("e", "base", "c", {"a": 1}, True)]


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({}, "give one of them"),
        ({"output_dir": "x", "run_config": 1}, "give one of them"),
        ({"output_dir": "x", "hparams": 1}, "hparams only with run_config"),
        ({"output_dir": "x", "schedule": "fly"}, "'fly', which Experiment"),
    ],
)
def test_learn_runner_refuses_what_it_cannot_run(tmp_path, kwargs, text):
    with pytest.raises(ConfigError, match=text):
        experiment.run(lambda **_: _experiment(tmp_path), **kwargs)


def test_metrics_for_an_estimator_that_has_its_own_are_refused(tmp_path):
    plain = tf1.estimator.Estimator(lambda features, labels: None, tmp_path)
    with pytest.raises(ConfigError, match="add_metrics"):
        experiment.Experiment(plain, _input, _input, eval_metrics={"a": 1})
