"""Which of TensorFlow's warnings are left out, with those that TensorFlow really gives."""

import importlib.util
import logging
import os
import warnings

import pytest
import tensorflow as tf
from tensorflow.python.util import deprecation

import estimator_runtime
from estimator_runtime.output import log_filter

estimator_runtime.install()
v1 = tf.compat.v1


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def logger(monkeypatch):
    """Return TensorFlow's logger, with a `DeprecationFilter` and a list of what passes it."""
    assert tf.estimator.Estimator  # imports the frozen package
    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})  # each but once a process
    logger = logging.getLogger("tensorflow")
    monkeypatch.setattr(logger, "filters", [log_filter.DeprecationFilter()])
    monkeypatch.setattr(logger, "handlers", [Kept()])
    monkeypatch.setattr(logger, "propagate", False)
    return logger


def passed(logger):
    return logger.handlers[0].lines


def count(logger):
    return logger.filters[0].count


def test_that_estimators_are_deprecated_is_left_out_and_counted(logger):
    tf.estimator.TrainSpec(input_fn=lambda: None)
    tf.estimator.EstimatorSpec("train", loss=tf.constant(0.0), train_op=tf.constant(0))
    assert passed(logger) == []
    assert count(logger) == 2


def test_feature_columns_and_export_outputs_of_the_program_are_left_out(logger):
    column = tf.feature_column.categorical_column_with_identity("digit", 10)
    tf.feature_column.embedding_column(column, 2)
    tf.feature_column.numeric_column("pixel")
    tf.estimator.export.PredictOutput(tf.constant(0.0))
    assert passed(logger) == []
    assert count(logger) == 4


def test_what_the_program_itself_calls_of_tensorflow_passes(logger):
    v1.train.SessionRunArgs(None)
    v1.to_float(1)
    first, second = passed(logger)
    assert first.startswith(f"From {__file__}:") and "SessionRunArgs.__new__" in first
    assert "to_float" in second and "Use `tf.cast` instead" in second
    assert count(logger) == 0


def test_that_layers_of_tensorflow_1_are_deprecated_is_left_out_and_others_are_shown(
    monkeypatch,
):
    shown, counter = [], log_filter.DeprecationFilter()
    monkeypatch.setattr(warnings, "showwarning", lambda *all: shown.append(str(all[0])))
    log_filter.leave_out_old_layers(counter)
    warnings.simplefilter("always")
    with tf.Graph().as_default():
        v1.layers.dense(tf.zeros([1, 1]), 1)
        v1.nn.rnn_cell.GRUCell(1)
    warnings.warn("`mine` is deprecated and will be removed", UserWarning, stacklevel=2)
    assert (shown, counter.count) == (["`mine` is deprecated and will be removed"], 2)


def test_what_keras_says_of_the_calls_of_a_keras_estimator_is_left_out(
    monkeypatch, tmp_path
):
    shown, counter = [], log_filter.DeprecationFilter()
    monkeypatch.setattr(warnings, "showwarning", lambda *all: shown.append(str(all[0])))
    log_filter.leave_out_old_layers(counter)
    warnings.simplefilter("always")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), "mse")
    estimator = tf.keras.estimator.model_to_estimator(model, model_dir=str(tmp_path))
    data = ([[1.0, 1.0]], [[1.0]])
    estimator.train(lambda: tf.data.Dataset.from_tensors(data), steps=1)
    assert [x for x in shown if "learning_phase" in x or "state_updates" in x] == []
    assert counter.count >= 2
    tf.keras.backend.set_learning_phase(0)  # by the program
    assert len([x for x in shown if "set_learning_phase` is deprecated" in x]) == 1


def test_the_rule_of_an_area_is_left_out_where_a_canned_estimator_chooses_it(logger):
    def metrics(labels, predictions):
        return v1.metrics.auc(labels, predictions["logistic"], curve="PR")

    def warns(estimator):
        with tf.Graph().as_default():
            v1.train.create_global_step()
            estimator.model_fn({"x": tf.ones([2, 1])}, tf.ones([2, 1]), "eval", None)
        return any("Trapezoidal" in each for each in passed(logger))

    column = tf.feature_column.numeric_column("x")
    canned = tf.estimator.LinearClassifier([column])
    assert not warns(canned)
    own = tf.estimator.add_metrics(
        canned, lambda labels, predictions: {"mine": metrics(labels, predictions)}
    )
    assert warns(own)


FROZEN = os.path.join(
    os.path.dirname(importlib.util.find_spec("tensorflow_estimator").origin),
    "head.py:3",
)
OURS = os.path.join(os.path.dirname(estimator_runtime.__file__), "session.py:3")
TENSORFLOW = os.path.join(os.path.dirname(tf.__file__), "python", "x.py:3")


@pytest.mark.parametrize(
    ("caller", "subject", "is_left_out"),
    [
        (FROZEN, "tensorflow.python.ops.init_ops", True),
        (OURS, "tensorflow.python.training.basic_session_run_hooks", True),
        (TENSORFLOW, "tensorflow.python.training.session_run_hook", True),
        (TENSORFLOW, "tensorflow.python.saved_model.utils_impl", True),
        (TENSORFLOW, "tensorflow.python.checkpoint.checkpoint_management", True),
        (TENSORFLOW, "tensorflow.python.distribute.distribute_lib", True),
        (TENSORFLOW, "tensorflow.python.ops.math_ops", False),
        ("/home/me/train.py:3", "tensorflow_estimator.python.estimator.estimator", True),
        ("/home/me/train.py:3", "tensorflow.python.feature_column.feature_column_v2", True),
        ("/home/me/train.py:3", "tensorflow.python.saved_model.model_utils.export_output", True),
        ("/home/me/train.py:3", "tensorflow.python.saved_model.loader_impl", False),
        ("/home/me/train.py:3", "tensorflow.python.training.session_run_hook", False),
        ("/home/me/tensorflow/train.py:3", "tensorflow.python.training.x", False),
    ],
)  # fmt: skip
def test_the_list_is_of_callers_and_of_what_they_call(
    logger, caller, subject, is_left_out
):
    logger.warning(
        "From %s: calling %s (from %s) with %s is deprecated and will be removed %s.\n"
        "Instructions for updating:\n%s",
        *(caller, "name", subject, "dtype", "in a future version", "Do."),
    )
    assert count(logger) == int(is_left_out)
    assert len(passed(logger)) == 1 - int(is_left_out)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "left out 1 warning about Estimator internals; --verbose shows them"),
        (54, "left out 54 warnings about Estimator internals; --verbose shows them"),
    ],
)
def test_one_line_says_how_many_were_left_out(count, expected):
    assert log_filter.summary(count) == expected


@pytest.mark.parametrize(
    ("environ", "gpus", "level", "devices"),
    [
        ({}, [], "2", "CPU"),
        ({"TF_CPP_MIN_LOG_LEVEL": "0"}, [], "0", "CPU"),
        ({"TF_ENABLED_DEVICE_TYPES": "CPU,MINE"}, [], "2", "CPU,MINE"),
        ({log_filter.VARIABLE: "1"}, [], None, None),
        ({}, ["/dev/nvidia0"], None, None),
    ],
)
def test_native_code_logs_errors_only_unless_the_user_or_a_gpu_needs_more(
    monkeypatch, environ, gpus, level, devices
):
    monkeypatch.setattr("glob.glob", lambda pattern: gpus)
    log_filter.set_native_level(environ)
    assert environ.get("TF_CPP_MIN_LOG_LEVEL") == level
    assert environ.get("TF_ENABLED_DEVICE_TYPES") == devices


def test_devices_of_an_installed_plugin_are_looked_for(monkeypatch, tmp_path):
    (tmp_path / "tensorflow-plugins").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr("glob.glob", lambda pattern: [])
    environ = {}
    log_filter.set_native_level(environ)
    assert environ == {"TF_CPP_MIN_LOG_LEVEL": "2"}
