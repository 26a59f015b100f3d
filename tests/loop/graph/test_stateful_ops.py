"""Ops that keep state in their kernel are not copied into a loop of steps."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from estimator_runtime.loop.graph import stateful_ops
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph

tf1 = tf.compat.v1
# Of them, no copy takes the state along: it is in the kernel, or in the name.
WITH_STATE_OF_THEIR_OWN = [
    "AddSparseToTensorsMap",
    "Barrier",
    "CollectiveReduceV2",
    "FIFOQueueV2",
    "HashTableV2",
    "IteratorV2",
    "RecordInput",
    "Skipgram",
    "Stage",
    "TakeManySparseFromTensorsMap",
    "TemporaryVariable",
    "Unstage",
    "VarHandleOp",
    "VariableV2",
]


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def registered():
    """Return the definitions of all ops of this TensorFlow, by name."""
    found = op_def_pb2.OpList()
    buffer = pywrap_tf_session.TF_GetAllOpList()
    found.ParseFromString(pywrap_tf_session.TF_GetBuffer(buffer))
    return {op.name: op for op in found.op}


def test_each_op_that_may_be_copied_is_a_stateful_op_of_this_tensorflow():
    known = registered()
    assert sorted(stateful_ops.COPYABLE - known.keys()) == []
    stateless = {n for n in stateful_ops.COPYABLE if not known[n].is_stateful}
    assert sorted(stateless) == []


def test_each_op_that_takes_state_by_a_handle_and_may_be_copied_takes_one():
    known = registered()
    by_handle = [
        n for n in stateful_ops.COPYABLE if n.startswith(("Resource", "Queue"))
    ]
    by_handle += [
        n for n in stateful_ops.COPYABLE if n.startswith(("Lookup", "Reader"))
    ]
    by_handle += [n for n in stateful_ops.COPYABLE if n.startswith("Write")]
    without = [
        name
        for name in by_handle
        if not any(
            arg.type == tf.resource.as_datatype_enum for arg in known[name].input_arg
        )
    ]
    assert without == ["WriteFile"]


def test_ops_whose_state_is_in_their_kernel_or_name_may_not_be_copied():
    known = registered()
    assert [n for n in WITH_STATE_OF_THEIR_OWN if not known[n].is_stateful] == []
    assert sorted(stateful_ops.COPYABLE.intersection(WITH_STATE_OF_THEIR_OWN)) == []


def sparse_map(x):
    """Keep a sparse tensor in a map that bears the name of its op."""
    many = tf.raw_ops.AddManySparseToTensorsMap(
        sparse_indices=np.zeros([1, 2], np.int64),
        sparse_values=x[None],
        sparse_shape=np.ones([2], np.int64),
        name="kept",
    )
    return tf.cast(many, tf.float32)


def in_a_function(x):
    return tf.function(lambda x: tf.function(sparse_map)(x) + 1)(x)


def in_a_branch(x):
    return tf.cond(x > 0, lambda: sparse_map(x), lambda: x[None])


@pytest.mark.parametrize("build", [sparse_map, in_a_function, in_a_branch])
def test_an_op_that_keeps_state_is_named_wherever_it_is(build):
    step = Subgraph(tf1.get_default_graph(), [build(tf.constant(1.0)).op])
    with pytest.raises(CannotFuse) as raised:
        step.check_fusable()
    reason = str(raised.value)
    assert reason.startswith("has an op that may keep state of its own, 'kept' ")
    assert "(AddManySparseToTensorsMap)" in reason
    assert ("in the function" in reason) is (build is not sparse_map)
