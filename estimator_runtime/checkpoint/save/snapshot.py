"""The content of a checkpoint, read between two steps in very little time.

The values of resource variables are held, not copied, unless saves are frequent (see
`copy_buffers`). A session returns them as views of the
variables' own buffers, and these buffers are copied on write: an update of a buffer
that has another holder goes to a new buffer (`PrepareToUpdateVariable` in TensorFlow's
training_op_helpers.h). So a view keeps the values of its step for as long as it is
held. All other values are copied, because a reference variable is updated in place.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.checkpoint.save.copy_buffers import CopyBuffers
from estimator_runtime.checkpoint.save.save_ops import Saved, saved_by
from estimator_runtime.compat import internals

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
    internals.BaseSaverBuilder,
    internals.BulkSaverBuilder,
}


class CannotSnapshot(Exception):
    """A snapshot is not possible; the message completes a "because ..." clause."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Values:
    """The values that a Saver would have saved at one step.

    Attributes:
        arrays: An array for each tensor, in the order of `Snapshot.saved`. Strings are
            arrays of bytes objects.
    """

    arrays: tuple[np.ndarray, ...]

    @property
    def bytes(self) -> int:
        """Size of the values, in bytes."""
        return sum(map(_bytes, self.arrays))


class Snapshot:
    """A reader of all values that a Saver saves, for any number of steps.

    Args:
        session: The session that holds the variables.
        saver: A built `tf.compat.v1.train.Saver` of its graph.

    Attributes:
        saved: The tensors that the Saver saves.
        buffers: The buffers that it copies to.

    Raises:
        CannotSnapshot: If only the Saver can save the values.
    """

    def __init__(self, session: tf.compat.v1.Session, saver: Any) -> None:
        self.saved = _saved(session, saver)
        names = list(dict.fromkeys(each.tensor.name for each in self.saved))
        self._places = [names.index(each.tensor.name) for each in self.saved]
        self._are_held = [is_held(each.tensor) for each in self.saved]
        options = config_pb2.CallableOptions(fetch=names)
        make = session._make_callable_from_options
        held = [
            i
            for i, is_held in zip(self._places, self._are_held, strict=True)
            if is_held
        ]
        self.buffers = CopyBuffers(held)
        self._do_call = session._do_call  # its errors name the op that failed
        self._read = self._do_call(make, options)

    def take(self) -> Values:
        """Return the values of this moment; no step may run during the call."""
        raw = list(self._do_call(self._read))
        copies = self.buffers.copies(raw)
        for i, copy in copies.items():
            raw[i] = copy
        held = zip(self._places, self._are_held, strict=True)
        return Values(
            arrays=tuple([_kept(raw[i], is_held or i in copies) for i, is_held in held])
        )


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


def _bytes(array: np.ndarray) -> int:
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _saved(session: tf.compat.v1.Session, saver: Any) -> list[Saved]:
    """Return the tensors that a Saver saves.

    Raises:
        CannotSnapshot: If the values of the tensors are not all that is needed.
    """
    if type(saver) is not tf1.train.Saver or "save" in vars(saver):
        name = type(saver).__name__
        raise CannotSnapshot(f"their saver is the program's own, {name!r}")
    if type(saver._builder) not in _BUILDERS:
        raise CannotSnapshot("their saver has a builder of the program's own")
    if saver._write_version != tf1.train.SaverDef.V2:
        raise CannotSnapshot("their saver writes the format of TensorFlow 0.x")
    if saver._is_empty:
        raise CannotSnapshot("their saver has nothing to save")
    if saver.saver_def is None:
        raise CannotSnapshot("their saver has not been built")
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
