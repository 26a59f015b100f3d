"""NaN among the values of the variables that are trained."""

import math

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.live_values import NanSearch

tf1 = tf.compat.v1


def first_nan(values, **kwargs):
    """Give what is found in variables of these values."""
    with tf.Graph().as_default(), tf1.Session() as session:
        for name, value in values.items():
            tf1.get_variable(name, initializer=value, **kwargs)
        search = NanSearch(tf1.global_variables())
        session.graph.finalize()
        session.run([variable.initializer for variable in tf1.global_variables()])
        return search.first(session)


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_a_variable_with_a_nan_is_named(dtype, use_resource):
    values = {
        "good": np.array([1.0, math.inf], dtype.as_numpy_dtype),
        "layer/bad": np.array([[1.0, 2.0], [math.nan, 4.0]], dtype.as_numpy_dtype),
    }
    assert first_nan(values, use_resource=use_resource) == "layer/bad"


def test_infinities_whose_sum_is_no_number_are_no_nan():
    assert first_nan({"mask": [math.inf, -math.inf], "count": [1, 2]}) is None


def test_a_model_without_floats_has_no_nan():
    assert first_nan({"count": [1, 2]}) is None
