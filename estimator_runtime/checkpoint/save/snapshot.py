"""The content of a checkpoint, read between two steps in very little time.

The values of resource variables are held, not copied. A session returns them as views
of the variables' own buffers, and these buffers are copied on write: an update of a
buffer that has another holder goes to a new buffer (`PrepareToUpdateVariable` in
TensorFlow's training_op_helpers.h). So a view keeps the values of its step for as long
as it is held. All other values are copied, because a reference variable is updated in
place.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.tf_internals import savers, sessions

tf1 = tf.compat.v1

# The types that numpy arrays pass to TensorFlow and back unchanged.
_PLAIN = {
    *(tf.bool, tf.string, tf.complex64, tf.complex128),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64),
    *(tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
}
# The classes that make a Saver's ops. A Saver made from a SaverDef has no builder,
# because its ops are in the graph already.
_BUILDERS = {
    type(None),
    savers.BaseSaverBuilder,
    savers.BulkSaverBuilder,
}


class CannotSnapshot(Exception):
    """A snapshot is not possible; the message completes a "because ..." clause."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """One tensor that a Saver saves.

    Attributes:
        name: Its name in the checkpoint.
        slice_spec: The part of a partitioned variable that it is, in SaveV2's format;
            "" for a whole variable.
        tensor: The `tf.Tensor`.
    """

    name: str
    slice_spec: str
    tensor: Any

    @property
    def shape(self) -> list[int] | None:
        """Shape of the whole variable, or None if it is not known."""
        if self.slice_spec:
            return [int(size) for size in self.slice_spec.split()[:-1]]
        shape = self.tensor.shape
        return shape.as_list() if shape.is_fully_defined() else None


def saved_by(saver: Any, graph: Any) -> list[Saved] | None:
    """Return the tensors that a Saver saves, or None if they are not known.

    Args:
        saver: A built `tf.compat.v1.train.Saver` that writes the V2 format.
        graph: The `tf.Graph` that it was built in.
    """
    end = graph.get_tensor_by_name(saver.saver_def.save_tensor_name).op
    found: list[Saved] = []
    pending = [end]
    seen: set[Any] = set()
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type != "SaveV2":
            pending += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
            continue
        names, slices = (tf.get_static_value(t) for t in op.inputs[1:3])
        if names is None or slices is None:
            return None
        found += [
            Saved(name=name.decode(), slice_spec=spec.decode(), tensor=tensor)
            for name, spec, tensor in zip(names, slices, op.inputs[3:], strict=True)
        ]
    return found or None


class Snapshot:
    """A reader of all values that a Saver saves, for any number of steps.

    Args:
        session: The session that holds the variables.
        saver: A built `tf.compat.v1.train.Saver` of its graph.

    Attributes:
        saved: The tensors that the Saver saves.

    Raises:
        CannotSnapshot: If only the Saver can save the values.
    """

    def __init__(self, session: tf.compat.v1.Session, saver: Any) -> None:
        self.saved = _saved(session, saver)
        names = list(dict.fromkeys(each.tensor.name for each in self.saved))
        self._places = [names.index(each.tensor.name) for each in self.saved]
        self._are_held = [is_held(each.tensor) for each in self.saved]
        options = config_pb2.CallableOptions(fetch=names)
        self._read = sessions.compiled(session, options)

    def take(self) -> list[np.ndarray]:
        """Return the values of this moment; no step may run during the call.

        Returns:
            An array for each tensor in `saved`. Strings are arrays of bytes objects.
        """
        raw = self._read()
        held = zip(self._places, self._are_held, strict=True)
        return [_kept(raw[i], is_held) for i, is_held in held]


def is_held(tensor: tf.Tensor) -> bool:
    """Return whether you can hold a tensor's value without a copy.

    No step changes such a value.
    """
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    return op.type == "ReadVariableOp"


def _kept(value: Any, is_held: bool) -> np.ndarray:
    if not isinstance(value, np.ndarray):  # a scalar: a numpy scalar, or bytes
        dtype = object if isinstance(value, (bytes, str)) else None
        return np.array(value, dtype=dtype)
    return value if is_held or value.flags.owndata else value.copy()


def size_of(array: np.ndarray) -> int:
    """Return the size of the values in an array, in bytes."""
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _saved(session: tf.compat.v1.Session, saver: Any) -> list[Saved]:
    """Return the tensors that a Saver saves.

    Raises:
        CannotSnapshot: If the values of the tensors are not all that is needed.
    """
    reason = savers.obstacle(saver)
    if reason is not None:
        raise CannotSnapshot(reason)
    if type(saver._builder) not in _BUILDERS:
        raise CannotSnapshot("their saver has a builder of the program's own")
    if not isinstance(session, tf1.Session) or session.sess_str:
        raise CannotSnapshot("the variables may be on other tasks of a cluster")
    saved = saved_by(saver, session.graph)
    if saved is None:
        raise CannotSnapshot("it is unknown what their saver saves")
    for each in saved:
        if each.tensor.dtype.base_dtype not in _PLAIN:
            raise CannotSnapshot(
                f"{each.name!r} is of type {each.tensor.dtype.base_dtype.name}"
            )
    return saved
