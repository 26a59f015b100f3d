"""The last lines of a program that TensorFlow has ended: the reason and the remedy."""

import os
import subprocess
import sys
import textwrap

import pytest
from tensorflow.python.framework import errors_impl

from estimator_runtime.cli.explanation import summary_of


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
    place = f"{tmp_path / 'train.py'}:4, in <module>"
    assert (status, last) == (
        1,
        f"estimator-runtime: error: {place}: NotFoundError: nofile.csv; No such file or "
        "directory",
    )
    assert "Traceback (most recent call last):" in before


def test_an_error_in_an_estimator_ends_with_the_line_of_the_program_and_the_features(
    tmp_path,
):
    write(
        tmp_path,
        {
            "train.py": """
                import tensorflow as tf
                def input_fn():
                    return tf.data.Dataset.from_tensors(({"age": [1.0], "sex": [0.0]}, [1.0]))
                column = tf.feature_column.numeric_column("height")
                tf.estimator.LinearRegressor([column], "model").train(input_fn)
                """
        },
    )
    status, lines = run(["train.py"], tmp_path)
    place = f"{tmp_path / 'train.py'}:6, in <module>"
    assert (status, lines[-1]) == (
        1,
        f"estimator-runtime: error: {place}: ValueError: Feature height is not in "
        "features dictionary. The input_fn gives these: 'age', 'sex'.",
    )


def test_an_error_of_a_library_in_input_fn_ends_with_the_line_of_the_program(tmp_path):
    write(
        tmp_path,
        {
            "train.py": """
                import numpy as np, tensorflow as tf
                def input_fn():
                    table = np.loadtxt("no.csv")
                    return tf.data.Dataset.from_tensors(({"age": table}, [1.0]))
                column = tf.feature_column.numeric_column("age")
                tf.estimator.LinearRegressor([column], "model").train(input_fn)
                """
        },
    )
    status, lines = run(["train.py"], tmp_path)
    place = f"{tmp_path / 'train.py'}:4, in input_fn"
    assert (status, lines[-1]) == (
        1,
        f"estimator-runtime: error: {place}: FileNotFoundError: no.csv not found.",
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("=====\n\n=====", ""),
        (
            "\n=====\nNOT_FOUND: From /job:ps/replica:0/task:0:\nnofile.csv; No such file"
            "\n\t [[{{node IteratorGetNext}}]]\nAdditional GRPC error information\n=====",
            "nofile.csv; No such file",
        ),
        (
            "2 root error(s) found.\n  (0) NOT_FOUND: nofile.csv\n\t [[{{node a}}]]",
            "(0) NOT_FOUND: nofile.csv",
        ),
    ],
)
def test_the_reason_is_found_in_the_middle_of_a_message_of_many_lines(message, reason):
    source = "raise errors_impl.NotFoundError(None, None, message)"
    names = {"__name__": "tensorflow.ops", "errors_impl": errors_impl}
    with pytest.raises(errors_impl.NotFoundError) as error:
        exec(source, {**names, "message": message})
    place = f"{__file__}:{error.traceback[0].lineno + 1}, in {error.traceback[0].name}"
    assert summary_of(error.value) == f"{place}: NotFoundError: {reason}"


def test_an_error_that_the_program_raises_itself_has_no_summary():
    with pytest.raises(errors_impl.NotFoundError) as error:
        raise errors_impl.NotFoundError(None, None, "a\nb")
    assert summary_of(error.value) is None
