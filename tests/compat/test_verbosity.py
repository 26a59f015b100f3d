"""What this package logs is shown where TensorFlow's log is."""

import logging

import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()
ours = logging.getLogger("estimator_runtime.loop.run_length")


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def shown(monkeypatch):
    """Give the lines that reach the handlers of TensorFlow's logger."""
    kept = Kept()
    monkeypatch.setattr(tf.get_logger(), "handlers", [kept])
    before = tf.get_logger().level
    yield kept.lines
    tf.get_logger().setLevel(before)


def test_info_is_shown_where_a_program_asks_tensorflow_for_it(shown):
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.WARN)
    ours.info("before")
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    ours.info("after")
    assert shown == ["after"]


def test_a_level_of_the_package_s_own_logger_wins(shown):
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    logging.getLogger("estimator_runtime").setLevel(logging.ERROR)
    try:
        ours.warning("too little")
    finally:
        logging.getLogger("estimator_runtime").setLevel(logging.NOTSET)
    assert shown == []
