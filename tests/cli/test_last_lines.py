"""The last lines of a program that TensorFlow has ended: the reason and the remedy."""

import textwrap

import pytest
from tensorflow.python.framework import errors_impl

from estimator_runtime.cli.explanation import summary_of


@pytest.fixture
def lines_of(run_script, tmp_path):
    """Return a function that runs a program that fails; it returns what it says."""

    def lines_of(program):
        (tmp_path / "train.py").write_text(textwrap.dedent(program))
        done = run_script("train.py", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        return done.stderr.splitlines()

    return lines_of


def test_the_reason_of_an_error_in_a_graph_is_the_last_line_again(lines_of, tmp_path):
    lines = lines_of(
        """
        import tensorflow.compat.v1 as tf
        with tf.Graph().as_default(), tf.Session() as session:
            lines = tf.io.read_file("nofile.csv")
            session.run(lines)
        """
    )
    *before, last = lines
    place = f"{tmp_path / 'train.py'}:4, in <module>"
    assert last == (
        f"estimator-runtime: error: {place}: NotFoundError: nofile.csv; No such file or "
        "directory"
    )
    assert "Traceback (most recent call last):" in before


def test_an_error_in_an_estimator_ends_with_the_line_of_the_program_and_the_features(
    lines_of, tmp_path
):
    lines = lines_of(
        """
        import tensorflow as tf
        def input_fn():
            return tf.data.Dataset.from_tensors(({"age": [1.0], "sex": [0.0]}, [1.0]))
        column = tf.feature_column.numeric_column("height")
        tf.estimator.LinearRegressor([column], "model").train(input_fn)
        """
    )
    place = f"{tmp_path / 'train.py'}:6, in <module>"
    assert lines[-1] == (
        f"estimator-runtime: error: {place}: ValueError: Feature height is not in "
        "features dictionary. The input_fn gives these: 'age', 'sex'."
    )


def test_an_error_of_a_library_in_input_fn_ends_with_the_line_of_the_program(
    lines_of, tmp_path
):
    lines = lines_of(
        """
        import numpy as np, tensorflow as tf
        def input_fn():
            table = np.loadtxt("no.csv")
            return tf.data.Dataset.from_tensors(({"age": table}, [1.0]))
        column = tf.feature_column.numeric_column("age")
        tf.estimator.LinearRegressor([column], "model").train(input_fn)
        """
    )
    place = f"{tmp_path / 'train.py'}:4, in input_fn"
    assert lines[-1] == (
        f"estimator-runtime: error: {place}: FileNotFoundError: no.csv not found."
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
