"""The content of a checkpoint, read between two steps in very little time.

The values of resource variables are held, not copied, unless saves are frequent. A
session returns them as views of the variables' own buffers, and these buffers are
copied on write: an update of a buffer that has another holder goes to a new buffer
(`PrepareToUpdateVariable` in TensorFlow's training_op_helpers.h). So a view keeps the
values of its step for as long as it is held. All other values are copied, because a
reference variable is updated in place.

When a step changes a value that a snapshot holds, TensorFlow copies it to memory that
the operating system has to find and clear first. That takes several times the processor
time of the copy itself, especially in a virtual machine that returns free memory to its
host. If saves are frequent, values are therefore copied to memory that is kept
(`CopyBuffers`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.checkpoint.save.save_ops import Saved, saved_by
from estimator_runtime.config.memory import available_mb
from estimator_runtime.tf_internals import internals

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
        copies: Those of them that are in buffers, to be given back.
    """

    arrays: tuple[np.ndarray, ...]
    copies: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)

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
        held = [
            i
            for i, is_held in zip(self._places, self._are_held, strict=True)
            if is_held
        ]
        self.buffers = CopyBuffers(held)
        self._read = internals.compiled(session, options)

    def take(self) -> Values:
        """Return the values of this moment; no step may run during the call."""
        raw = list(self._read())
        copies = self.buffers.copies(raw)
        for i, copy in copies.items():
            raw[i] = copy
        held = zip(self._places, self._are_held, strict=True)
        arrays = [_kept(raw[i], is_held or i in copies) for i, is_held in held]
        return Values(arrays=tuple(arrays), copies=copies)


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


_FREQUENT_SECS = 60.0  # with a save every minute, 1 GB of buffers saves 1 % of a core
_FREQUENT_SAVES = 2  # buffers pay off after these; short trainings have no more
_LEAST_BYTES = 1 << 20  # malloc keeps smaller blocks anyway
_ALIGNMENT = 64  # of tensors; TensorFlow copies unaligned memory
# Allocate or keep buffers if this many times their size is available.
_TO_ALLOCATE, _TO_KEEP = 4, 1
_MB = 1 << 20


class CopyBuffers:
    """Buffers for the values that steps change, kept while saves are frequent.

    They are allocated after two saves in a row that each follow the previous one within
    a minute, if four times their size is available. They are freed when a save comes
    later than that, or when less memory than their size is available.

    Args:
        held: Indexes of the values that a snapshot holds if they are not copied.
        clock: Returns the time in seconds.
        available: Returns the available memory in MB, or None if it is unknown.
    """

    def __init__(
        self,
        held: Collection[int],
        clock: Callable[[], float] = time.monotonic,
        available: Callable[[], int | None] = available_mb,
    ) -> None:
        self._held = held
        self._clock = clock
        self._available = available
        self._buffers: dict[int, _Buffer] = {}
        self._lent: dict[int, np.ndarray] | None = None  # the copies in use
        self._addresses: dict[int, int] = {}
        self._wanted: dict[int, tuple[tuple[int, ...], np.dtype]] = {}
        self._last_secs: float | None = None
        self._frequent = 0

    @property
    def bytes(self) -> int:
        """Total size of the buffers in bytes."""
        return sum(buffer.bytes for buffer in self._buffers.values())

    def copies(self, values: Sequence[Any]) -> dict[int, np.ndarray]:
        """Return copies of those values of a snapshot that have a buffer.

        The buffers are in use until `release` is called, and further calls return no
        copies until then.

        Args:
            values: The values, in the same order at each call.

        Returns:
            The copies by index.
        """
        now, last = self._clock(), self._last_secs
        self._last_secs = now
        is_frequent = last is not None and now - last < _FREQUENT_SECS
        self._frequent = self._frequent + 1 if is_frequent else 0
        if not is_frequent or not self._has_room(self.bytes, _TO_KEEP):
            self._forget()
        large = {
            place: value
            for place, value in enumerate(values)
            if isinstance(value, np.ndarray)
            and value.dtype != object
            and value.nbytes >= _LEAST_BYTES
        }
        addresses = {place: value.ctypes.data for place, value in large.items()}
        # A held value whose address has not changed has caused no copy.
        self._wanted = {
            place: (value.shape, value.dtype)
            for place, value in large.items()
            if place not in self._held
            or self._addresses.get(place) not in (None, addresses[place])
        }
        self._addresses = addresses
        if self._lent is not None:
            return {}
        copies = {
            place: buffer.copy(large[place])
            for place, buffer in self._buffers.items()
            if place in large and buffer.fits(large[place])
        }
        self._lent = copies or None
        return copies

    def release(self, copies: dict[int, np.ndarray]) -> None:
        """Allow the next call of `copies` to overwrite these copies.

        It does nothing if their buffers have been freed.
        """
        if copies is self._lent:
            self._lent = None

    def allocate(self) -> None:
        """Allocate buffers for the next snapshot if they pay off.

        Call this after the values of the last snapshot have been freed. It never fails:
        the checkpoint that was written before is good.
        """
        wanted = self._wanted
        size = sum(_size(shape, dtype) for shape, dtype in wanted.values())
        if (
            self._frequent >= _FREQUENT_SAVES
            and not self._buffers
            and self._has_room(size, _TO_ALLOCATE)
        ):
            try:
                self._buffers = {p: _Buffer(*each) for p, each in wanted.items()}
            except MemoryError:  # by a limit of this process, such as ulimit -v
                self._frequent = 0

    def free(self) -> None:
        """Free the buffers; the memory of copies in use is freed after that use."""
        self._forget()
        self._frequent = 0

    def _forget(self) -> None:
        self._buffers, self._lent = {}, None

    def _has_room(self, size: int, times: int) -> bool:
        if not size:
            return True
        available = self._available()
        return available is not None and available * _MB >= times * size


class _Buffer:
    """Memory for an array of one shape and type."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._shape, self._dtype = shape, dtype
        self.bytes = _size(shape, dtype)
        self._memory = np.empty(self.bytes + _ALIGNMENT, np.uint8)
        self._memory.fill(0)  # memory is only allocated when it is written to
        self._start = -self._memory.ctypes.data % _ALIGNMENT

    def fits(self, value: np.ndarray) -> bool:
        """Return whether the buffer has the shape and type of a value."""
        return value.shape == self._shape and value.dtype == self._dtype

    def copy(self, value: np.ndarray) -> np.ndarray:
        """Copy a value into the buffer and return the copy."""
        memory = self._memory[self._start : self._start + self.bytes]
        copy = memory.view(self._dtype).reshape(self._shape)
        np.copyto(copy, value)
        return copy


def _size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
