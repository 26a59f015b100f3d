"""The last lines of a program that TensorFlow has ended: the reason and the remedy."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from tensorflow.python.framework import errors_impl

from estimator_runtime.cli.script import reason_of


def run(arguments, folder, **variables):
    """Return the exit status and the lines on standard error of a program."""
    done = subprocess.run(
        [sys.executable, "-m", "estimator_runtime", "run", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr.splitlines()


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(textwrap.dedent(text))


def test_the_reason_of_an_error_in_a_graph_is_the_last_line_again(tmp_path):
    write(
        tmp_path,
        {
            "train.py": """
                import tensorflow.compat.v1 as tf
                with tf.Graph().as_default(), tf.Session() as session:
                    lines = tf.io.read_file("nofile.csv")
                    session.run(lines)
                """
        },
    )
    status, lines = run(["train.py"], tmp_path)
    *before, last = lines
    place = f"{tmp_path / 'train.py'}:4"
    assert (status, last) == (
        1,
        f"estimator-runtime: error: {place}: NotFoundError: nofile.csv; No such file or "
        "directory",
    )
    assert "Traceback (most recent call last):" in before


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("nofile.csv; No such file or directory", None),
        (
            "\n=====\nNOT_FOUND: From /job:ps/replica:0/task:0:\nnofile.csv; No such file"
            "\n\t [[{{node IteratorGetNext}}]]\nAdditional GRPC error information\n=====",
            "NotFoundError: nofile.csv; No such file",
        ),
        (
            "2 root error(s) found.\n  (0) NOT_FOUND: nofile.csv\n\t [[{{node a}}]]",
            "NotFoundError: (0) NOT_FOUND: nofile.csv",
        ),
    ],
)
def test_the_reason_is_found_in_the_middle_of_a_message_of_many_lines(message, reason):
    assert reason_of(errors_impl.NotFoundError(None, None, message)) == reason


def test_a_ps_that_calls_train_is_told_to_use_train_and_evaluate(tmp_path):
    write(
        tmp_path,
        {
            "train.py": """
                import tensorflow as tf
                tf.estimator.LinearRegressor([], "model").train(lambda: None)
                """
        },
    )
    cluster = {"chief": ["localhost:1"], "ps": ["localhost:2"]}
    config = json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}})
    status, lines = run(["train.py"], tmp_path, TF_CONFIG=config)
    assert (status, lines[-1]) == (
        1,
        f"estimator-runtime: error: {tmp_path / 'train.py'}:3: Estimator.train cannot be "
        "called by a ps or an evaluator; use tf.estimator.train_and_evaluate, which does "
        "what each task of a cluster has to do",
    )


@pytest.mark.parametrize(
    ("options", "remedy"),
    [(["--tf1"], "put --tf1 before the script"), ([], "'estimator-runtime run --tf1'")],
)
def test_a_name_of_tensorflow_1_is_followed_by_the_remedy(options, remedy, tmp_path):
    program = "import sys, tensorflow as tf\ntf.get_variable(sys.argv[1])\n"
    write(tmp_path, {"train.py": program})
    status, lines = run(["train.py", *options], tmp_path)
    assert status == 1
    assert remedy in lines[-1]


@pytest.mark.parametrize("message", [None, "", "one line", "=====\n\n====="])
def test_an_error_without_a_longer_message_has_no_reason_of_its_own(message):
    assert reason_of(errors_impl.NotFoundError(None, None, message)) is None
