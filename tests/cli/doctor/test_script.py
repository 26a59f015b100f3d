"""What is read from a script's text: which names it needs, and where."""

import textwrap

import pytest

from estimator_runtime.cli.doctor import script


def read(source):
    return script.read(textwrap.dedent(source))


@pytest.mark.parametrize(
    "source, names",
    [
        ("import tensorflow as tf\ntf.estimator.RunConfig()", ["tensorflow", "tensorflow.estimator.RunConfig"]),
        ("import tensorflow\ntensorflow.Session()", ["tensorflow", "tensorflow.Session"]),
        ("import tensorflow.compat.v1 as tf\ntf.Session()", ["tensorflow.compat.v1", "tensorflow.compat.v1.Session"]),
        ("from tensorflow import estimator as e\ne.Estimator", ["tensorflow.estimator", "tensorflow.estimator.Estimator"]),
        ("from tensorflow.compat.v1 import *", ["tensorflow.compat.v1"]),
        ("import numpy as np\nnp.zeros(3)", []),
        ("from .tensorflow import estimator", []),
    ],
)  # fmt: skip
def test_names_are_followed_from_the_import(source, names):
    assert list(script.read(source).names) == names


def test_each_name_has_its_first_line():
    uses = read(
        """
        import tensorflow as tf

        def model_fn():
            tf.estimator.EstimatorSpec()
            tf.estimator.EstimatorSpec()
        """
    )
    assert uses.names == {"tensorflow": 2, "tensorflow.estimator.EstimatorSpec": 5}
    assert uses.estimator_names == ("tensorflow.estimator.EstimatorSpec",)


def test_what_a_program_guards_itself_is_not_needed():
    uses = read(
        """
        import tensorflow as tf
        try:
            from tensorflow.contrib import learn
        except ImportError:
            learn = None
        if hasattr(tf, "Session"):
            tf.Session()
        if tf.__version__ < "2":
            tf.placeholder()
        """
    )
    assert uses.names == {"tensorflow": 2}


def test_an_if_of_the_model_and_a_try_that_only_cleans_up_guard_nothing():
    uses = read(
        """
        import tensorflow as tf
        try:
            if training or conversion_rate > 0:
                tf.Session()
        finally:
            print("end")
        """
    )
    assert "tensorflow.Session" in uses.names


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\ntf = tf.compat.v1\ntf.Session()",
        "import tensorflow as tf\ndef f(tf): return tf.Session()",
        "import tensorflow as tf\nimport tensorflow.compat.v1 as tf\ntf.Session()",
        "import tensorflow as tf\ntf.Session = tf.compat.v1.Session\ntf.Session()",
    ],
)
def test_a_name_that_may_mean_something_else_is_left_alone(source):
    assert not any(each.endswith(".Session") and "v1" not in each for each in script.read(source).names)  # fmt: skip


def test_tpus_and_keras_itself_are_noticed():
    uses = read(
        """
        import keras
        keras.layers.Dense(1)
        estimator.TPUEstimator(model_fn, use_tpu=False)
        estimator.TPUEstimator(model_fn, use_tpu=True)
        """
    )
    assert uses.tpu_lines == (5,)
    assert uses.keras_names == {"keras": 2, "keras.layers.Dense": 3}
    nothing = script.read("import tensorflow.keras as keras")
    assert (nothing.tpu_lines, nothing.keras_names) == ((), {})


def test_methods_of_what_is_the_scripts_own_have_their_first_line():
    uses = read(
        """
        import tensorflow as tf
        tf.data.Dataset.range(3)
        data = (
            tf.data.Dataset.range(3)
            .repeat()
        )
        data.repeat().batch(
            3
        ).batch(4)
        tf.add(1, 2)
        tf.negative(1, name="two")
        try:
            tf.subtract(1, 2)
            data.map(2)
        except AttributeError:
            pass
        """
    )
    assert uses.methods == {"repeat": 6, "batch": 8}
    assert uses.by_position == {"tensorflow.add": 11}
