"""Which lines of a task's tracebacks are frames of libraries."""

import os
import re

import estimator_runtime

_OURS = re.escape(os.path.join(os.path.dirname(estimator_runtime.__file__), ""))
# The first line of a frame, in a traceback or in a message of TensorFlow's.
_LIBRARY_FRAME = re.compile(
    rf'( +)File "(.*/(site-packages|dist-packages)/|{_OURS}'
    r"|.*__autograph_generated)"
)


class LibraryFrames:
    """Recognize the lines of library frames in the output of one task."""

    def __init__(self) -> None:
        self._indentation: str | None = None  # of the frame above, if any

    def has(self, line: str) -> bool:
        """Return whether a line, the next one, is part of a frame of a library."""
        if frame := _LIBRARY_FRAME.match(line):
            self._indentation = frame[1]
        elif self._indentation and not line.startswith(f"{self._indentation} "):
            self._indentation = None
        return self._indentation is not None
