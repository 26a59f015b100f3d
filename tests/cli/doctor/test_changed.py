"""Names that TensorFlow 2 has for something else than TensorFlow 1 had."""

import operator

import pytest
import tensorflow as tf

from estimator_runtime.cli.doctor import script

_ITERATOR = "tf.data.Dataset.range(3).make_one_shot_iterator()"


def find(source):
    return script.find(script.read(source))


@pytest.mark.parametrize("used", ["tf.summary.scalar", "tf.summary.text"])
def test_a_summary_of_tensorflow_2_is_found_with_its_line_and_the_old_one(used):
    [(line, name, difference, remedy)] = find(
        f"import tensorflow as tf\n{used}('x', 1)"
    )
    assert (line, name) == (2, used.replace("tf", "tensorflow"))
    assert difference == "writes nothing in a model_fn, where it has no writer"
    assert remedy == used.replace("tf", "tensorflow.compat.v1")


def test_a_dropout_by_position_is_found():
    source = "import tensorflow as tf\ntf.nn.dropout(x, 0.9)"
    assert [each[:2] for each in find(source)] == [(2, "tensorflow.nn.dropout(x, p)")]


def test_an_iterator_made_by_a_method_of_a_dataset_is_found():
    [(line, name, _, remedy)] = find(f"import tensorflow as tf\n{_ITERATOR}")
    assert (line, name) == (2, ".make_one_shot_iterator()")
    assert remedy.startswith(
        "tensorflow.compat.v1.data.make_one_shot_iterator(dataset)"
    )


def test_what_is_found_is_in_the_order_of_the_lines():
    source = f"import tensorflow as tf\n{_ITERATOR}\ntf.summary.image(1, 2)"
    assert [each[0] for each in find(source)] == [2, 3]


@pytest.mark.parametrize(
    "source",
    [
        f"import tensorflow.compat.v1 as tf\n{_ITERATOR}",
        f"import tensorflow as tf\ntf = tf.compat.v1\n{_ITERATOR}",
        f"import tensorflow as tf\n{_ITERATOR.replace('tf', 'tf.compat.v1')}",
        f"from tensorflow.compat.v1 import data\n{_ITERATOR.removeprefix('tf.')}",
        "import tensorflow as tf\nMine().make_one_shot_iterator()",
        "import tensorflow.compat.v1 as tf\ntf.summary.scalar(1, 2)",
        "import tensorflow as tf\ntf.compat.v1.summary.scalar(1, 2)",
        "import tensorflow as tf\ntf.summary.FileWriter",
        "import tensorflow as tf\n"
        "with tf.summary.create_file_writer('x').as_default():\n"
        "    tf.summary.scalar('x', 1.0)",
        "import tensorflow as tf\ntf.nn.dropout(x, rate=0.1)",
        "import tensorflow.compat.v1 as tf\ntf.nn.dropout(x, 0.9)",
    ],
)
def test_what_does_what_it_says_is_not(source):
    assert find(source) == []


@pytest.mark.parametrize("name", [*script._SUMMARIES, script._DROPOUT])
def test_the_names_are_in_both_and_not_the_same(name):
    path = operator.attrgetter(name.removeprefix("tensorflow."))
    assert path(tf) is not path(tf.compat.v1)


@pytest.mark.parametrize("method", script._METHODS)
def test_the_methods_are_those_of_datasets_of_tensorflow_1_only(method):
    assert hasattr(tf.compat.v1.data.Dataset, method)
    assert not hasattr(tf.data.Dataset, method)
    assert callable(getattr(tf.compat.v1.data, method))


def test_a_dropout_by_position_drops_what_that_of_tensorflow_1_kept():
    ones = tf.ones([1000])
    assert tf.reduce_sum(tf.cast(tf.nn.dropout(ones, 0.9) == 0, tf.int32)) > 700
    old = tf.compat.v1.nn.dropout(ones, 0.9)
    assert tf.reduce_sum(tf.cast(old == 0, tf.int32)) < 300
