"""`--progress` as a user sees it: the example in a terminal."""

import fcntl
import os
import pathlib
import re
import struct
import subprocess
import sys
import termios

SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "digits.py"


def run_in_terminal(*arguments, cwd):
    """Return (exit status, all that a terminal was sent on standard error)."""
    inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 25, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "estimator_runtime", "run", *map(str, arguments)],
        cwd=cwd,
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the last one who could write has gone
            break
        if not part:
            break
        sent += part
    os.close(ours)
    return process.wait(60), sent.decode(errors="replace")


def test_a_terminal_shows_a_bar_to_the_last_step(tmp_path):
    flags = ("--model_dir", "model", "--max_steps", 400)
    status, sent = run_in_terminal(SCRIPT, *flags, cwd=tmp_path)
    assert status == 0, sent
    assert re.search(r"100%\|.*\| 400/400 \[.*, loss=\d\.\d+.*\]", sent), sent


_ABSL_PROGRAM = """
import tensorflow as tf
from absl import logging

tf1 = tf.compat.v1
tf1.logging.set_verbosity(tf1.logging.INFO)

def model_fn(features, labels, mode):
    weight = tf1.get_variable("weight", [])
    loss = tf.square(weight - labels)
    step = tf1.train.get_or_create_global_step()
    train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

class Talk(tf1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        logging.info("a line by absl")

def main(argv):
    config = tf.estimator.RunConfig("model", log_step_count_steps=20)
    data = lambda: tf.data.Dataset.from_tensors((1.0, 1.0)).repeat()
    tf.estimator.Estimator(model_fn, config=config).train(data, [Talk()], 200)

tf1.app.run(main)
"""


def test_lines_of_absl_go_above_the_bar_and_repeat_none_of_tensorflow(tmp_path):
    (tmp_path / "train.py").write_text(_ABSL_PROGRAM)
    status, sent = run_in_terminal("train.py", cwd=tmp_path)
    assert status == 0, sent
    # What stays on the terminal: a carriage return starts a line again.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in sent.split("\n")]
    assert [line for line in lines if "%|" in line] == [lines[-4]], sent
    assert re.match(r"100%\|.*\| 200/200 ", lines[-4])
    assert len([line for line in lines if line.endswith("] a line by absl")]) == 200
    of_tensorflow = [line for line in lines if "global_step/sec" in line]
    assert len(of_tensorflow) == 9
    assert all(line.startswith("INFO:tensorflow:") for line in of_tensorflow)
