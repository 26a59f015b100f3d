"""Which lines of a task's tracebacks are frames of libraries."""

import re

from estimator_runtime import code_origin
from estimator_runtime.code_origin import Origin

# The first line of a frame, in a traceback or in a message of TensorFlow's.
_FRAME = re.compile(r'( +)File "([^"]+)"')
_LIBRARIES = (Origin.FRAMEWORK, Origin.GENERATED, Origin.INSTALLED)


class LibraryFrames:
    """Recognize the lines of library frames in the output of one task."""

    def __init__(self) -> None:
        self._indentation: str | None = None  # of the frame above, if any

    def has(self, line: str) -> bool:
        """Return whether a line, the next one, is part of a frame of a library."""
        frame = _FRAME.match(line)
        if frame and code_origin.of_file(frame[2]) in _LIBRARIES:
            self._indentation = frame[1]
        elif self._indentation and not line.startswith(f"{self._indentation} "):
            self._indentation = None
        return self._indentation is not None
