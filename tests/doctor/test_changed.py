"""Names that TensorFlow 2 has for something else than TensorFlow 1 had."""

import operator

import pytest
import tensorflow as tf

from estimator_runtime.doctor import changed, probe, program

_ITERATOR = "tf.data.Dataset.range(3).make_one_shot_iterator()"


def found(source):
    return [each[:2] for each in changed.find(program.read(source))]


@pytest.mark.parametrize(
    "used",
    [
        "tf.summary.scalar",
        "tf.losses.mean_squared_error",
        "tf.metrics.mean_squared_error",
    ],
)
def test_a_name_that_stands_for_something_else_is_found_with_its_line(used):
    assert found(f"import tensorflow as tf\n{used}(1, 2)") == [(2, used)]


def test_an_iterator_made_by_a_method_of_a_dataset_is_found():
    method = ".make_one_shot_iterator()"
    assert found(f"import tensorflow as tf\n{_ITERATOR}") == [(2, method)]


@pytest.mark.parametrize(
    "source",
    [
        f"import tensorflow.compat.v1 as tf\n{_ITERATOR}",
        "import tensorflow.compat.v1 as tf\ntf.summary.scalar(1, 2)",
        "import tensorflow as tf\ntf.compat.v1.summary.scalar(1, 2)",
        "import tensorflow as tf\ntf.summary.FileWriter",
    ],
)
def test_what_means_the_same_as_ever_is_not(source):
    assert found(source) == []


def test_the_names_are_in_both_or_the_note_would_send_people_astray():
    of_v1 = [
        name.replace("tensorflow.", "tensorflow.compat.v1.") for name in changed._NAMES
    ]
    assert probe.ask([*changed._NAMES, *of_v1])["missing"] == {}


@pytest.mark.parametrize("method", changed._METHODS)
def test_the_methods_are_those_of_datasets_of_tensorflow_1_only(method):
    assert hasattr(tf.compat.v1.data.Dataset, method)
    assert not hasattr(tf.data.Dataset, method)
    assert callable(operator.attrgetter(method)(tf.compat.v1.data))
