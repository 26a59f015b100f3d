"""Which lines of a task's tracebacks are frames of libraries."""

import re

from estimator_runtime import code_origin
from estimator_runtime.code_origin import Origin
from estimator_runtime.output.json_log import level_of

# The first line of a frame, in a traceback or in a message of TensorFlow's.
_FRAME = re.compile(r'( +)File "([^"]+)"')
_LIBRARIES = (Origin.FRAMEWORK, Origin.GENERATED, Origin.INSTALLED)


class LibraryFrames:
    """Recognize the lines of library frames in the output of one task."""

    def __init__(self) -> None:
        self._indentation = ""  # of the frame above, if any

    def has(self, line: str) -> bool:
        """Return whether a line, the next one, is part of a frame of a library.

        A log line of another thread may stand in a frame, and blank lines below it.
        """
        if self._indentation and level_of(line):
            return False
        frame = _FRAME.match(line)
        if frame and code_origin.of_file(frame[2]) in _LIBRARIES:
            self._indentation = frame[1]
        elif line.strip() and not line.startswith(f"{self._indentation} "):
            self._indentation = ""
        return bool(self._indentation)
