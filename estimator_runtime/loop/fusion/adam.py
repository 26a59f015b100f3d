"""Splits Adam's update of a small variable into simple ops.

From a few hundred elements on, the kernel of `ResourceApplyAdam` hands parts of an
update to other threads and waits for them, because it overestimates the work: it
multiplies by the number of elements once too often. Up to tens of thousands of
elements, the handover takes longer than the arithmetic. With 4,096 elements on two
cores, the kernel takes 51 us, and separate ops take 11 us in a loop of steps, because
they run on the loop's own thread. The ops do the same arithmetic in the same order.

Each process checks once that their results are bit-identical, because a compiler may
have fused multiplications and additions inside the kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.tf_internals import op_kinds

tf1 = tf.compat.v1
# The kernel updates a smaller variable on one thread too, in half the time of the ops.
# For a larger one, the kernel is faster: it uses more threads and makes fewer passes
# over memory.
_FEWEST_ELEMENTS = 512
_MOST_ELEMENTS = 16_384
_SCALARS = slice(3, 9)  # beta1_power, beta2_power, lr, beta1, beta2, epsilon
_EPSILON, _GRADIENT = 8, 9
_FLOAT = tf.float32.as_datatype_enum


def split(
    graph_def: tf.compat.v1.GraphDef, operations: Mapping[str, tf.Operation]
) -> None:
    """Replace the updates of small variables in a GraphDef, if the results are equal.

    Args:
        graph_def: The GraphDef, which is changed in place. Each update is replaced by
            an op of the same name without outputs, and the ops that it depends on.
        operations: The ops that its nodes were made from, by name.
    """
    small = {
        name
        for name, op in operations.items()
        if _is_small_update(op) and _changes_alone(op, operations)
    }
    if not small or not _is_exact():
        return
    _replace(graph_def, small)


def _replace(graph_def: tf.compat.v1.GraphDef, updates: Container[str]) -> None:
    """Replace nodes `ResourceApplyAdam`, given by their names, in a GraphDef."""
    constants = {node.name for node in graph_def.node if node.op == "Const"}
    nodes = list(graph_def.node)
    del graph_def.node[:]
    for node in nodes:
        is_update = node.name in updates
        graph_def.node.extend(_Update(node, constants).nodes if is_update else [node])


def _is_small_update(op: tf.Operation) -> bool:
    """Return whether an op is an update by Adam that is faster as several ops."""
    if op.type != "ResourceApplyAdam" or op.inputs[0].op.type != "VarHandleOp":
        return False
    shape = tf.TensorShape(op.inputs[0].op.get_attr("shape"))
    epsilon = tf.get_static_value(op.inputs[_EPSILON])
    return (
        op.get_attr("T") == tf.float32
        and not op.get_attr("use_nesterov")
        # The kernel rejects unequal shapes; the ops would broadcast them.
        and shape.is_fully_defined()
        and op.inputs[_GRADIENT].shape.is_fully_defined()
        and op.inputs[_GRADIENT].shape == shape
        and all(tensor.shape.rank == 0 for tensor in op.inputs[_SCALARS])
        and _FEWEST_ELEMENTS <= shape.num_elements() <= _MOST_ELEMENTS
        # If epsilon were 0, TensorFlow would optimize the addition away, and use a
        # reciprocal square root.
        and epsilon is not None
        and epsilon > 0
    )


def _changes_alone(update: tf.Operation, operations: Container[str]) -> bool:
    """Return whether no other op of the step changes the variable or its slots.

    Another op could run in between the separate ops of an update, which the kernel does
    as a whole. Locks make no difference, because the steps of a loop do not overlap.
    """
    return all(
        op is update or op.name not in operations or op_kinds.of(op.type).reads_variable
        for handle in update.inputs[:3]
        for op in handle.consumers()
    )


class _Update:
    """One update, split into several ops.

    Args:
        node: The `ResourceApplyAdam`.
        constants: Names of nodes that nothing has to wait for.

    Attributes:
        nodes: The nodes that replace it.
    """

    def __init__(self, node: tf.compat.v1.NodeDef, constants: set[str]) -> None:
        self.nodes: list[tf.compat.v1.NodeDef] = []
        self._name, self._device = node.name, node.device
        inputs = [name for name in node.input if not name.startswith("^")]
        var, m, v, power1, power2, lr, beta1, beta2, epsilon, grad = inputs
        one = self._add("Const", [], "dtype")
        value = tf.make_tensor_proto(1.0, tf.float32)
        self.nodes[-1].attr["value"].tensor.CopyFrom(value)
        rate1 = self._compute("Sub", one, beta1)
        rate2 = self._compute("Sub", one, beta2)
        # alpha = lr * sqrt(1 - beta2_power) / (1 - beta1_power)
        root = self._compute("Sqrt", self._compute("Sub", one, power2))
        part = self._compute("Mul", lr, root)
        alpha = self._compute("RealDiv", part, self._compute("Sub", one, power1))
        # Read the variables when the kernel would: after everything it waits for.
        sources = ["^" + name.partition(":")[0] for name in inputs[3:]]
        waits = [name for name in node.input if name.startswith("^")]
        waits += [each for each in sources if each[1:] not in constants]
        old_m, old_v, old_var = (self._read(each, waits) for each in (m, v, var))
        # m += (grad - m) * (1 - beta1)
        change = self._compute("Mul", self._compute("Sub", grad, old_m), rate1)
        new_m = self._compute("AddV2", old_m, change)
        # v += (grad^2 - v) * (1 - beta2)
        square = self._compute("Square", grad)
        change = self._compute("Mul", self._compute("Sub", square, old_v), rate2)
        new_v = self._compute("AddV2", old_v, change)
        # var -= m * alpha / (sqrt(v) + epsilon)
        root = self._compute("AddV2", self._compute("Sqrt", new_v), epsilon)
        step = self._compute("RealDiv", self._compute("Mul", new_m, alpha), root)
        new_var = self._compute("Sub", old_var, step)
        done = [
            self._add("AssignVariableOp", [handle, value], "dtype")
            for handle, value in ((m, new_m), (v, new_v), (var, new_var))
        ]
        end = tf1.NodeDef(name=node.name, op="NoOp", device=node.device)
        end.input.extend(f"^{name}" for name in done)
        self.nodes.append(end)

    def _compute(self, kind: str, *inputs: str) -> str:
        """Add an op that computes something, and return its name."""
        return self._add(kind, inputs, "T")

    def _read(self, handle: str, waits: Iterable[str]) -> str:
        """Add an op that reads a variable, and return its name."""
        return self._add("ReadVariableOp", [handle, *dict.fromkeys(waits)], "dtype")

    def _add(self, kind: str, inputs: Iterable[str], type_attr: str) -> str:
        """Add an op of 32-bit floats, and return its name."""
        name = f"{self._name}/{kind}_{len(self.nodes)}"
        node = tf1.NodeDef(name=name, op=kind, device=self._device)
        node.input.extend(inputs)
        node.attr[type_attr].type = _FLOAT
        self.nodes.append(node)
        return name


@functools.cache
def _is_exact() -> bool:
    """Return whether the ops and the kernel agree bit for bit on random numbers.

    This takes about a tenth of a second, once per process.
    """
    # The kernel has a separate loop for the elements that do not fill a register.
    sizes = (_FEWEST_ELEMENTS, _FEWEST_ELEMENTS + 3)
    return all(_updated(size, False) == _updated(size, True) for size in sizes)


def _updated(elements: int, is_split: bool) -> list[bytes]:
    """Return a variable and its slots after an update by the kernel or by the ops."""
    random = np.random.RandomState(elements)
    scale = 10.0 ** random.uniform(-6, 3, size=[4, elements])
    numbers = (scale * random.normal(size=scale.shape)).astype(np.float32)
    starts = {"var": numbers[0], "m": numbers[1], "v": np.abs(numbers[2])}
    names = ("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon")
    scalars = map(tf1.float32.as_numpy_dtype, (0.43, 0.992, 0.003, 0.9, 0.999, 1e-8))
    with tf.Graph().as_default() as graph:
        handles, assigned, read = {}, [], []
        for name, start in starts.items():
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=[elements], shared_name=name
            )
            assign = tf.raw_ops.AssignVariableOp(resource=handle, value=start)
            handles[name] = handle
            assigned.append(assign.name)
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            read.append(value.name)
        inputs = dict(zip(names, scalars, strict=True))
        update = tf.raw_ops.ResourceApplyAdam(**handles, **inputs, grad=numbers[3])
        graph_def = graph.as_graph_def()
    if is_split:
        _replace(graph_def, [update.name])
    # Only CPUs are needed.
    config = config_pb2.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default(), tf1.Session(config=config) as session:
        tf.graph_util.import_graph_def(graph_def, name="")
        session.run(assigned)
        session.run(update.name)
        return [value.tobytes() for value in session.run(read)]
