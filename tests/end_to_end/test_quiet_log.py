"""What the command leaves out of a script's log, and that --verbose brings it back."""

import re

SCRIPT = """
import logging, sys, warnings
import tensorflow as tf

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.INFO)


def model_fn(features, labels, mode):
    warnings.warn("of the script's own")
    tf.get_logger().warning("of the script's own, in TensorFlow's log")
    weight = v1.get_variable("weight", initializer=0.0)
    loss = tf.square(weight - v1.to_float(1))
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(
        loss, v1.train.get_global_step()
    )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


tf.estimator.Estimator(model_fn, sys.argv[1]).train(input_fn, max_steps=3)
tf.get_logger().error("an error")
"""
# What the README and the docs say is left out.
DEPRECATED = re.compile(r"WARNING:tensorflow:From .*is deprecated")
# As TensorFlow 2.21 and 2.15 write it.
NATIVE_WARNING = re.compile(r"W\d{4} \S+ +\d+ \S+\]|\d{4}-\d\d-\d\d \S+: W ")


def warnings_of(lines):
    """Return the warnings and errors, without the folder that a line is of.

    But for the one that TensorFlow gives or not, by when it reads the global step.
    """
    shown = [
        line
        for line in lines
        if re.match(r"(WARNING|ERROR):tensorflow:(?!It seems that global step)", line)
    ]
    return [re.sub(r"From \S+:\d+:", "From CALLER:", line) for line in shown]


def test_a_script_s_log_has_its_own_warnings_and_verbose_brings_back_all(
    run_script, tmp_path
):
    (tmp_path / "train.py").write_text(SCRIPT)

    def run(*options):
        done = run_script(*options, cwd=tmp_path, TF_CPP_MIN_LOG_LEVEL=None)
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    quiet = run("train.py", "quiet")
    assert not [line for line in quiet if DEPRECATED.match(line)]
    verbose = run("--verbose", "train.py", "verbose")
    left_out = [line for line in verbose if DEPRECATED.match(line)]
    assert any("Estimator.__init__" in line for line in left_out)
    # All others are there, in their order.
    others = [line for line in verbose if not DEPRECATED.match(line)]
    assert warnings_of(quiet) == warnings_of(others)
    text = "\n".join(quiet)
    assert "UserWarning: of the script's own\n" in text
    assert "WARNING:tensorflow:of the script's own, in TensorFlow's log" in text
    assert "ERROR:tensorflow:an error" in text
    assert quiet[-1] == (
        f"estimator-runtime: left out {len(left_out)} deprecation warnings of "
        "TensorFlow's; --verbose shows them"
    )
    assert not [line for line in quiet if NATIVE_WARNING.match(line)]
    assert "cuInit" not in text
    assert "left out" not in "\n".join(verbose)
