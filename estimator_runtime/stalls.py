"""Finds out that a training takes no step, and where its threads are then.

Standard library only, and no file is read, not even for a line of source: the disk may
be what the training waits for.
"""

import math
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_PACKAGES = frozenset(
    ("estimator_runtime", "keras", "tensorflow", "tensorflow_estimator", "tf_keras")
)
_OURS = os.path.join(os.path.dirname(__file__), "")
_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")
# How much is told of a stall.
_MAX_FRAMES, _MAX_THREADS = 5, 4


class StepWatch:
    """Detects a training that should take steps and takes none for too long.

    The methods may be called by any thread.

    Args:
        limit_secs: A stall is told of after so long, and whenever it has lasted twice
            as long; 0 for never.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, limit_secs: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_secs, self._clock = limit_secs or math.inf, clock
        self._thread: int | None = None  # that trains; None while nobody does
        self._has_moved = False
        self._moved_at, self._due_secs = 0.0, self._limit_secs

    def expect(self) -> None:
        """Expect steps from now on, taken by the calling thread."""
        self._has_moved, self._thread = True, threading.get_ident()

    def release(self) -> None:
        """Expect no more steps: the training has ended."""
        self._thread = None

    def move(self) -> None:
        """Take note of a step. It is called at each, so it has to be cheap."""
        self._has_moved = True

    def look(self) -> dict | None:
        """Return a report of the stall, if one is to be told of now.

        Returns:
            None, or "secs", for how long there was no step, and "stacks": one list for
            each thread that is in the program's code, that which trains first, of
            places such as "/home/me/train.py:12, in input_fn", outermost first.
        """
        now, thread = self._clock(), self._thread
        if self._has_moved or thread is None:
            self._has_moved = False
            self._moved_at, self._due_secs = now, self._limit_secs
            return None
        if now - self._moved_at < self._due_secs:
            return None
        self._due_secs = 2 * (now - self._moved_at)
        return {"secs": now - self._moved_at, "stacks": _stacks(thread)}


def is_of_program(frame: FrameType) -> bool:
    """Return whether a frame is not of TensorFlow, this package or Python."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    path = frame.f_code.co_filename
    is_installed = "site-packages" in path or "dist-packages" in path
    is_library = path.startswith((_LIBRARY, "<frozen ")) and not is_installed
    # A module of ours may be the `__main__` of its process.
    is_ours = package in _PACKAGES or path.startswith(_OURS)
    return not (is_ours or is_library)


def _stacks(first: int) -> list[list[str]]:
    """Return where threads are: `first`, and others that are in the program's code."""
    frames = sys._current_frames()
    own = frames.pop(first, None)
    found = [] if own is None else [_places(own)]
    for frame in frames.values():
        if any(map(is_of_program, _outwards(frame))):
            found.append(_places(frame))
    return found[:_MAX_THREADS]


def _places(innermost: FrameType) -> list[str]:
    """Return the last places in the program's code, and the very last of all."""
    frames = list(_outwards(innermost))
    told = [frame for frame in frames if frame is innermost or is_of_program(frame)]
    return [
        f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
        for frame in reversed(told[:_MAX_FRAMES])
    ]


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
