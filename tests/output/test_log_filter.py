"""Which of TensorFlow's warnings are left out, with those that TensorFlow really gives."""

import inspect
import logging
import logging.handlers
import queue
import sys
import warnings

import absl.logging
import pytest
import tensorflow as tf
from tensorflow.python.distribute import distribute_coordinator
from tensorflow.python.util import deprecation

import estimator_runtime
from estimator_runtime import reporting
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


def test_the_deprecation_of_what_the_program_itself_calls_is_left_out_too(logger):
    v1.train.SessionRunArgs(None)
    v1.to_float(1)
    logging.getLogger("tensorflow").warning("From %s: mine", "me")
    assert passed(logger) == ["From me: mine"]
    assert count(logger) == 2


@pytest.fixture
def log_of_task(monkeypatch):
    """Return a logger that is used as in a task of a job."""
    monkeypatch.setattr(reporting, "is_on", lambda: True)
    monkeypatch.setattr(logging.StreamHandler, "format", logging.Handler.format)
    log_filter.start({log_filter.VARIABLE: "1"})
    logger = logging.Logger("mine")
    yield logger
    for each in logger.handlers:
        each.close()


def test_in_a_task_the_further_lines_of_a_message_begin_with_a_tab(log_of_task, capsys):
    log_of_task.addHandler(logging.StreamHandler())
    log_of_task.addHandler(logging.StreamHandler(sys.stdout))
    log_of_task.error("first of %s\nsecond", "A")
    assert capsys.readouterr() == ("first of A\n\tsecond\n",) * 2


def test_in_a_task_a_handler_without_a_stream_gets_messages_as_they_are(log_of_task):
    class Kept(logging.StreamHandler):
        def __init__(self):
            logging.Handler.__init__(self)
            self.texts = []

        def emit(self, record):
            self.texts.append(self.format(record))

        def flush(self):
            pass

    log_of_task.addHandler(kept := Kept())
    log_of_task.error("first\nsecond")
    assert kept.texts == ["first\nsecond"]


def test_in_a_task_absls_handler_marks_what_it_writes_to_standard_error(
    log_of_task, capsys
):
    formatter = logging.Formatter()
    log_of_task.addHandler(absl.logging.PythonHandler(sys.stderr, formatter))
    log_of_task.error("first\nsecond")
    assert capsys.readouterr().err.endswith("first\n\tsecond\n")


def test_in_a_task_the_files_and_queues_of_a_program_get_its_messages_as_they_are(
    log_of_task, tmp_path, capsys
):
    file, shown = logging.FileHandler(tmp_path / "log"), logging.StreamHandler()
    messages = queue.SimpleQueue()
    log_of_task.addHandler(logging.handlers.QueueHandler(messages))
    log_of_task.error("first\nsecond")
    listener = logging.handlers.QueueListener(messages, file, shown)
    listener.start()
    listener.stop()
    file.close()
    assert (tmp_path / "log").read_text() == "first\nsecond\n"
    assert capsys.readouterr().err == "first\n\tsecond\n"


def test_warnings_of_old_layers_and_dataset_options_are_left_out_and_others_are_shown():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", log_filter.HIDDEN_WARNINGS)
        with tf.Graph().as_default():
            v1.layers.dense(tf.zeros([1, 1]), 1)
            v1.nn.rnn_cell.GRUCell(1)
            tf.data.Dataset.range(1).options()
        warnings.warn("`mine` is deprecated and old", UserWarning, stacklevel=2)
    assert [str(each.message) for each in shown] == ["`mine` is deprecated and old"]


def test_that_an_evaluation_has_no_strategy_is_left_out(logger):
    source = inspect.getsource(distribute_coordinator)
    assert '"`eval_strategy` is not passed in. No distribution "' in source
    logger.warning("`eval_strategy` is not passed in. No distribution strategy will")
    assert (passed(logger), count(logger)) == ([], 1)


def test_that_a_training_was_stopped_before_its_first_step_does_not_blame_the_input(
    logger,
):
    source = inspect.getsource(inspect.getmodule(tf.estimator.Estimator))
    assert "'Training with estimator made no steps. '" in source
    logger.warning("Training with estimator made no steps. Perhaps input is empty")
    assert (passed(logger), count(logger)) == ([], 1)


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
