"""Memory for the values of a snapshot, which later snapshots reuse.

When a step changes a value that a snapshot holds, TensorFlow copies it to memory that
the operating system has to find and clear first. That takes several times the processor
time of the copy itself, especially in a virtual machine that returns free memory to its
host. If saves are frequent, values are therefore copied to memory that is kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from estimator_runtime.config.memory import available_mb

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
        self._addresses: dict[int, int] = {}
        self._wanted: dict[int, tuple[tuple[int, ...], np.dtype]] = {}
        self._last_secs: float | None = None
        self._frequent = 0

    @property
    def bytes(self) -> int:
        """Total size of the buffers in bytes."""
        return sum(buffer.bytes for buffer in self._buffers.values())

    def copies(self, values: Sequence[Any]) -> dict[int, np.ndarray]:
        """Return copies of those values of a snapshot for which a buffer is free.

        Args:
            values: The values, in the same order at each call.

        Returns:
            The copies by index. A buffer is free when nothing refers to its last copy.
        """
        now, last = self._clock(), self._last_secs
        self._last_secs = now
        is_frequent = last is not None and now - last < _FREQUENT_SECS
        self._frequent = self._frequent + 1 if is_frequent else 0
        if not is_frequent or not self._has_room(self.bytes, _TO_KEEP):
            self._buffers = {}
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
        return {
            place: buffer.copy(large[place])
            for place, buffer in self._buffers.items()
            if place in large and buffer.fits(large[place])
        }

    def allocate(self) -> None:
        """Allocate buffers for the next snapshot if they pay off.

        Call this after the values of the last snapshot have been freed. It never fails:
        the checkpoint that was written before is good.
        """
        wanted = self._wanted
        size = sum(_bytes(shape, dtype) for shape, dtype in wanted.values())
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
        self._buffers = {}
        self._frequent = 0

    def _has_room(self, size: int, times: int) -> bool:
        if not size:
            return True
        available = self._available()
        return available is not None and available * _MB >= times * size


class _Buffer:
    """Memory for an array of one shape and type."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._shape, self._dtype = shape, dtype
        self.bytes = _bytes(shape, dtype)
        self._memory = np.empty(self.bytes + _ALIGNMENT, np.uint8)
        self._memory.fill(0)  # memory is only allocated when it is written to
        self._start = -self._memory.ctypes.data % _ALIGNMENT
        self._idle_references = self._references()

    def fits(self, value: np.ndarray) -> bool:
        """Return whether the buffer is free and has the shape and type of a value."""
        return (
            self._references() == self._idle_references
            and value.shape == self._shape
            and value.dtype == self._dtype
        )

    def copy(self, value: np.ndarray) -> np.ndarray:
        """Copy a value into the buffer and return the copy."""
        memory = self._memory[self._start : self._start + self.bytes]
        copy = memory.view(self._dtype).reshape(self._shape)
        np.copyto(copy, value)
        return copy

    def _references(self) -> int:
        # Every view of the memory refers to it, and so does a view of a view.
        return sys.getrefcount(self._memory)


def _bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
