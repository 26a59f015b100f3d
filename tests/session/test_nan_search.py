"""NaN among the values of the variables that are trained."""

import math

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.session.creators import first_nan

tf1 = tf.compat.v1


@pytest.fixture
def target():
    """Return the address of a server whose sessions share their variables."""
    return tf1.train.Server.create_local_server().target


def found_in(target, values, **kwargs):
    """Return what is found in variables of these values."""
    with tf.Graph().as_default() as graph, tf1.Session(target) as session:
        for name, value in values.items():
            tf1.get_variable(name, initializer=value, **kwargs)
        variables = tf1.global_variables()
        session.run([variable.initializer for variable in variables])
        graph.finalize()
        return first_nan(session, variables)


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_a_variable_with_a_nan_is_named(target, dtype, use_resource):
    values = {
        "good": np.array([1.0, math.inf], dtype.as_numpy_dtype),
        "layer/bad": np.array([[1.0, 2.0], [math.nan, 4.0]], dtype.as_numpy_dtype),
    }
    assert found_in(target, values, use_resource=use_resource) == "layer/bad"


def test_infinities_whose_sum_is_no_number_are_no_nan(target):
    assert found_in(target, {"mask": [math.inf, -math.inf], "count": [1, 2]}) is None


def test_variables_in_parts_and_beside_others_are_found_by_their_names(target):
    with tf.Graph().as_default() as graph, tf1.Session(target) as session:
        parts = tf1.fixed_size_partitioner(2)
        table = tf1.get_variable(
            "table", initializer=tf.ones([4, 2]), partitioner=parts
        )
        first, second = table
        with tf1.colocate_with(first.op):
            beside = tf1.get_variable("beside", initializer=[1.0])
        session.run([variable.initializer for variable in (first, second, beside)])
        session.run(second.assign([[1.0, 2.0], [math.nan, 4.0]]))
        graph.finalize()
        assert first_nan(session, [beside, *table]) == "table/part_1"
