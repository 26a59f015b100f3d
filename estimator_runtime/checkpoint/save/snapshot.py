"""What a checkpoint will hold, read between two steps in next to no time.

The values of resource variables are not copied: a session gives them as views of the
very buffers that the variables have, and these are copied on write, so that a view
keeps the values of its step for as long as it is held: an update of a buffer that
anybody else holds goes to a new one (`PrepareToUpdateVariable` in TensorFlow's
training_op_helpers.h). Everything else is copied: a reference variable is updated in
place.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import saver as saver_module

from estimator_runtime.checkpoint.save_ops import saved_by

tf1 = tf.compat.v1

# Those that numpy's arrays carry to TensorFlow and back as they are.
_PLAIN = {
    *(tf.bool, tf.string, tf.complex64, tf.complex128),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64),
    *(tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
}
# What a Saver has its ops from; one from a SaverDef has them in the graph already.
_BUILDERS = {
    type(None),
    saver_module.BaseSaverBuilder,
    saver_module.BulkSaverBuilder,
}


class CannotSnapshot(Exception):
    """Why a Saver has to save by itself, as the end of "because ..."."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Values:
    """What a Saver would have saved at some step.

    Attributes:
        arrays: An array for each tensor, in the order of `Snapshot.saved`; texts are
            arrays of bytes objects.
    """

    arrays: tuple[Any, ...]

    @property
    def bytes(self):
        """Size of the values, in bytes."""
        return sum(map(_bytes, self.arrays))


class Snapshot:
    """Reads all that a Saver saves, at one step boundary after the other.

    Args:
        session: The session that holds the variables.
        saver: A built `tf.compat.v1.train.Saver` of its graph.

    Attributes:
        saved: List of `Saved`, one for each value.

    Raises:
        CannotSnapshot: If only the Saver can save them.
    """

    def __init__(self, session, saver):
        self.saved = _saved(session, saver)
        names = list(dict.fromkeys(each.tensor.name for each in self.saved))
        self._places = [names.index(each.tensor.name) for each in self.saved]
        self._are_held = [is_held(each.tensor) for each in self.saved]
        options = config_pb2.CallableOptions(fetch=names)
        make = session._make_callable_from_options
        self._do_call = session._do_call  # which names the op that fails
        self._read = self._do_call(make, options)

    def take(self):
        """Give the `Values` of this moment; no step may run meanwhile."""
        raw = self._do_call(self._read)
        held = zip(self._places, self._are_held, strict=True)
        return Values(arrays=tuple([_kept(raw[i], is_held) for i, is_held in held]))


def is_held(tensor):
    """Tell whether the value of a tensor can be held, as no step will change it."""
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    return op.type == "ReadVariableOp"


def _kept(value, is_held):
    if not isinstance(value, np.ndarray):  # of a scalar: numpy's own, or bytes
        dtype = object if isinstance(value, (bytes, str)) else None
        return np.array(value, dtype=dtype)
    return value if is_held or value.flags.owndata else value.copy()


def _bytes(array):
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _saved(session, saver):
    """Give what is saved, unless there is more to it than values."""
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
        raise CannotSnapshot("it cannot be told what their saver saves")
    for each in saved:
        if each.tensor.dtype.base_dtype not in _PLAIN:
            raise CannotSnapshot(
                f"{each.name!r} is of type {each.tensor.dtype.base_dtype.name}"
            )
    return saved
