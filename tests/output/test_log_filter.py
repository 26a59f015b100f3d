"""Which of TensorFlow's warnings are left out, with those that TensorFlow really gives."""

import importlib.util
import inspect
import logging
import os
import warnings

import pytest
import tensorflow as tf
from tensorflow.python.distribute import distribute_coordinator
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


FROZEN = os.path.join(
    os.path.dirname(importlib.util.find_spec("tensorflow_estimator").origin),
    "head.py:3",
)
OURS = os.path.join(os.path.dirname(estimator_runtime.__file__), "session.py:3")
TENSORFLOW = os.path.join(os.path.dirname(tf.__file__), "python", "x.py:3")


# Asks a dataset for its options in a graph, as a strategy does for an Estimator.
ASKS = "with tf.Graph().as_default(): tf.data.Dataset.range(1).options()"


@pytest.mark.parametrize(("file", "is_left_out"), [(FROZEN, True), (__file__, False)])
def test_that_a_dataset_does_not_know_its_options_is_left_out_for_estimators(
    monkeypatch, file, is_left_out
):
    shown, counter = [], log_filter.DeprecationFilter()
    monkeypatch.setattr(warnings, "showwarning", lambda *all: shown.append(str(all[0])))
    log_filter.leave_out_old_layers(counter)
    warnings.simplefilter("always")
    exec(compile(ASKS, file, "exec"), {"__name__": "mine", "tf": tf})
    assert (len(shown), counter.count) == ((0, 1) if is_left_out else (1, 0))


@pytest.mark.parametrize(("file", "is_left_out"), [(FROZEN, True), (__file__, False)])
def test_that_an_evaluation_has_no_strategy_is_left_out_for_estimators(
    logger, file, is_left_out
):
    source = inspect.getsource(distribute_coordinator)
    start = '"`eval_strategy` is not passed in. No distribution "'
    assert start in source
    text = "`eval_strategy` is not passed in. No distribution strategy will be used"
    warns = compile(f"logger.warning({text!r})", file, "exec")
    exec(warns, {"__name__": "mine", "logger": logger})
    assert count(logger) == int(is_left_out)


@pytest.mark.parametrize(
    ("caller", "subject", "is_left_out"),
    [
        (FROZEN, "tensorflow.python.ops.init_ops", True),
        (OURS, "tensorflow.python.training.basic_session_run_hooks", True),
        (TENSORFLOW, "tensorflow.python.training.session_run_hook", True),
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
