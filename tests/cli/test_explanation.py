"""What is said of an error of a training: the line of the program, and the input."""

import runpy
import traceback

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.cli import explanation

er.install()
_UNEQUAL = "Dimensions must be equal, but are 1 and 5 for "
_COLUMNS = [tf.feature_column.numeric_column(name) for name in ("age", "hours")]


def error_of(folder, input_fn):
    """Return the error that a training with this input ends with."""
    estimator = tf.estimator.LinearRegressor(_COLUMNS, str(folder))
    with pytest.raises((ValueError, tf.errors.OpError)) as raised:
        estimator.train(input_fn, max_steps=1)
    return raised.value


def line_of(error, function):
    """Return the line at which the traceback of an error is in a function of this file."""
    frames = traceback.extract_tb(error.__traceback__)
    return next(each.lineno for each in frames if each.name == function)


@pytest.mark.parametrize("name", ["features", "params"])
def test_a_feature_that_the_program_looks_up_and_nobody_gives_is_explained(
    name, tmp_path
):
    def model_fn(features, labels, mode, params):
        return features["x"] * params["age"]

    def model_of_features(features, labels, mode):
        return features["age"]

    fn = model_fn if name == "params" else model_of_features
    estimator = tf.estimator.Estimator(
        fn, str(tmp_path), params={} if name == "params" else None
    )
    with pytest.raises(KeyError) as raised:
        estimator.train(
            lambda: tf.data.Dataset.from_tensors({"x": 1.0, "n": 2.0}), steps=1
        )
    text = explanation.summary_of(raised.value)
    if name == "params":
        assert text is None
    else:
        line = fn.__code__.co_firstlineno + 1
        assert text == (
            f"{__file__}:{line}, in model_of_features: KeyError: 'age'. "
            "The input_fn gives these: 'x', 'n'."
        )


def test_a_feature_that_a_library_looks_up_has_the_programs_line(tmp_path):
    library = tmp_path / "site-packages" / "columns.py"
    library.parent.mkdir()
    library.write_text("def look(table):\n    return table['age']\n")
    look = runpy.run_path(str(library))["look"]

    def model_fn(features, labels, mode):
        return look(features)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path / "model"))
    with pytest.raises(KeyError) as raised:
        estimator.train(lambda: tf.data.Dataset.from_tensors({"x": 1.0}), steps=1)
    line = model_fn.__code__.co_firstlineno + 1
    assert explanation.summary_of(raised.value) == (
        f"{__file__}:{line}, in model_fn: KeyError: 'age'. The input_fn gives these: 'x'."
    )


def test_an_error_in_code_that_autograph_rewrote_has_the_programs_line(tmp_path):
    def input_fn():
        data = tf.data.Dataset.from_tensors({"x": 1.0})
        return data.map(lambda features: features["y"])

    line = input_fn.__code__.co_firstlineno + 2
    estimator = tf.estimator.LinearRegressor(_COLUMNS, str(tmp_path))
    with pytest.raises(KeyError) as raised:
        estimator.train(input_fn, steps=1)
    text = explanation.summary_of(raised.value)
    assert text == f"{__file__}:{line}, in <lambda>: KeyError: 'y'"


class Product(tf.keras.layers.Layer):
    def call(self, x):
        return tf.matmul(x, tf.ones([5, 5]))


class TwoProducts(tf.keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.product = Product()

    def call(self, x):
        return self.product(x)


product, two_products = Product(), TwoProducts()


def multiply(features):
    return product(features["x"])


def multiply_in_a_nested_layer(features):
    return two_products(features["x"])


def multiply_a_scalar(features):
    return tf.keras.layers.Dense(1)(1.0)


class OddNumber(Exception):
    """Of the program: AutoGraph raises a StagingError instead."""


def raise_own(features):
    raise OddNumber("first:\nsecond")


def look_up(features):
    try:
        return multiply(features)
    except ValueError:
        raise KeyError("mine") from None


def raise_in_three_lines(features):
    raise ValueError("the reason:\n\n  a detail\nand another")


@pytest.mark.parametrize(
    ("function", "fails", "reason"),
    [
        (
            raise_in_three_lines,
            raise_in_three_lines,
            "ValueError: the reason:\n  a detail\nand another",
        ),
        (multiply, Product.call, f"ValueError: {_UNEQUAL}"),
        (multiply_in_a_nested_layer, Product.call, f"ValueError: {_UNEQUAL}"),
        (multiply_a_scalar, multiply_a_scalar, "ValueError: Input 0 of layer "),
        (raise_own, raise_own, "OddNumber: first:\nsecond"),
        (look_up, look_up, "KeyError: 'mine'"),
    ],
)
def test_an_error_of_several_lines_in_such_code_has_its_whole_message(
    function, fails, reason, tmp_path
):
    def input_fn():
        return tf.data.Dataset.from_tensors({"x": [[1.0]]}).map(function)

    estimator = tf.estimator.LinearRegressor(_COLUMNS, str(tmp_path))
    with pytest.raises(Exception, match="in user code:") as raised:
        estimator.train(input_fn, steps=1)
    text = explanation.summary_of(raised.value)
    code = fails.__code__
    line = code.co_firstlineno + (4 if fails is look_up else 1)
    assert text.startswith(f"{__file__}:{line}, in {code.co_name}: {reason}")
    assert "Call arguments" not in text


@pytest.mark.parametrize(
    ("age", "label", "given"),
    [
        ("old", 1.0, "feature 'age' as string, shape (1,)"),
        (4.0, "one", "labels as string, shape (1,)"),
    ],
)
def test_an_error_in_an_op_names_the_only_input_that_it_reads(
    tmp_path, age, label, given
):
    def input_fn():
        features = {"age": [age], "hours": [2.0]}
        return tf.data.Dataset.from_tensors((features, [label]))

    error = error_of(tmp_path, input_fn)
    text = explanation.summary_of(error)
    assert text.startswith(f"{__file__}:{line_of(error, 'error_of')}, in error_of: ")
    assert text.endswith(
        f": Cast string to float is not supported (the input_fn gives {given})"
    )


def test_an_error_that_no_type_explains_names_no_input(tmp_path):
    def model_fn(features, labels, mode):
        data = tf.io.read_file(features["path"])
        loss = tf.cast(tf.strings.length(data), tf.float32)
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    with pytest.raises(tf.errors.NotFoundError) as raised:
        estimator.train(
            lambda: tf.data.Dataset.from_tensors({"path": "no.csv"}), steps=1
        )
    text = explanation.summary_of(raised.value)
    assert text.endswith("NotFoundError: no.csv; No such file or directory")


def test_an_error_in_a_function_of_the_pipeline_is_placed_there(tmp_path):
    def read(age):
        raise RuntimeError("cannot decode row\n\nsee the manual")

    def input_fn():
        def parse(age, label):
            parsed = tf.numpy_function(read, [age], tf.float32)
            return {"age": tf.ensure_shape(parsed, [1]), "hours": age}, label

        data = np.float32([[1.0]])
        return tf.data.Dataset.from_tensor_slices((data, data)).map(parse).batch(1)

    line = read.__code__.co_firstlineno + 1
    assert explanation.summary_of(error_of(tmp_path, input_fn)) == (
        f"{__file__}:{line}, in read: RuntimeError: cannot decode row\nsee the manual"
    )


def test_a_shortened_traceback_has_the_frames_of_the_program_and_the_cause(tmp_path):
    def input_fn():
        try:
            {}["salary"]
        except KeyError as error:
            raise ValueError("no such column\n\nsee the manual") from error

    error = error_of(tmp_path, input_fn)
    line = input_fn.__code__.co_firstlineno + 4
    text = explanation.shortened(error).splitlines()
    frames = [each for each in text if each.startswith("  File")]
    assert frames == [
        f'  File "{__file__}", line {line_of(error, "error_of")}, in error_of',
        f'  File "{__file__}", line {line}, in input_fn',
    ]
    assert text[0] == "Traceback (most recent call last):"
    assert text[-4:] == [
        "ValueError: no such column",
        "",
        "see the manual",
        "caused by KeyError: 'salary'",
    ]


def test_an_endless_recursion_is_shortened_too():
    def endless():
        endless()

    with pytest.raises(RecursionError) as raised:
        endless()
    text = explanation.shortened(raised.value).splitlines()
    assert any(each.endswith(", in endless") for each in text)
    assert text[-1].startswith("RecursionError: maximum recursion depth exceeded")


def test_frames_of_other_libraries_do_not_hide_that_of_the_program(tmp_path):
    with pytest.raises(np.exceptions.AxisError) as raised:
        np.median(np.zeros(3), axis=7)
    text = explanation.shortened(raised.value)
    assert text.splitlines()[1].startswith(f'  File "{__file__}"')
    assert "numpy" not in text.splitlines()[1]


def test_only_the_error_that_the_session_has_raised_again_is_dropped():
    def fail(loss):
        with tf.compat.v1.Session(graph=loss.graph) as session:
            session.run(loss)

    with tf.Graph().as_default():
        loss = tf.debugging.check_numerics(tf.constant(np.nan), "bad")
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        try:
            raise KeyError("the root")
        except KeyError:
            fail(loss)
    explanation.drop_first_raise(raised.value)
    text = "".join(traceback.format_exception(raised.value))
    assert "KeyError: 'the root'" in text
    assert text.count("bad : Tensor had NaN") == 1


def test_brackets_in_the_source_of_a_function_do_not_hide_where_it_failed(tmp_path):
    def parse(rows):
        raise ValueError(f"cannot parse {rows}")

    def read(age):
        return parse([[age]])

    def input_fn():
        def map_fn(age, label):
            parsed = tf.numpy_function(read, [age], tf.float32)
            return {"age": tf.ensure_shape(parsed, [1]), "hours": age}, label

        data = np.float32([[1.0]])
        return tf.data.Dataset.from_tensor_slices((data, data)).map(map_fn).batch(1)

    text = explanation.summary_of(error_of(tmp_path, input_fn))
    line = parse.__code__.co_firstlineno + 1
    assert text.startswith(f"{__file__}:{line}, in parse: ValueError: cannot parse ")


def test_the_reason_of_an_op_of_another_task_stands_below_where_it_was_made():
    # As of a step whose graph is spread over tasks.
    text = """Graph execution error:

Detected at node 'dnn/age_1/Cast' defined at (most recent call last):
    File "train.py", line 35, in <module>
    File "keras.py", line 184, in call
Node: 'dnn/age_1/Cast'
Cast string to float is not supported
\t [[{{node dnn/age_1/Cast}}]]"""
    assert explanation._reason([text]) == "Cast string to float is not supported"
