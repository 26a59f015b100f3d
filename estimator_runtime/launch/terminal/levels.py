"""Which log lines of the tasks are shown, by their level."""

from __future__ import annotations

import re
from collections.abc import Mapping

from estimator_runtime.errors import ConfigError
from estimator_runtime.output.json_log import level_of

VARIABLE = "ESTIMATOR_RUNTIME_LOG_LEVEL"
# From the lowest to the highest.
LEVELS = ("debug", "info", "warning", "error")
# A message that opens more braces than it closes goes on for so many lines at most.
_MAX_LINES = 200
# A line of a protocol buffer, as text.
_OF_PROTO = re.compile(r"\s|\w+: |.*[{}]")
# A second line, as of the export signatures that TensorFlow lists. The lines of a
# traceback, which a log line of another thread may interrupt, have more spaces.
_SECOND = re.compile(r" \S|\t|Instructions for updating:$")
# TensorFlow's deprecation warnings have them on the lines after this one.
_INSTRUCTIONS = "Instructions for updating:"
_TRACEBACK = "Traceback (most recent call last):"


def in_environ(environ: Mapping[str, str]) -> str | None:
    """Return the level that the environment asks for, or None.

    Raises:
        ConfigError: If it is none of `LEVELS`.
    """
    text = environ.get(VARIABLE)
    if text is None or text in LEVELS:
        return text
    raise ConfigError(f"{VARIABLE} is {text!r}; give one of {', '.join(LEVELS)}")


class LevelFilter:
    """Hides log lines of one task that are below a level.

    A line without a level is shown, unless it continues a hidden message directly above
    it: it is indented, or belongs to the instructions of a deprecation warning, or to a
    protocol buffer that is not complete yet, such as the config that an Estimator logs.

    Args:
        lowest: The lowest level that is shown; see `LEVELS`.
    """

    def __init__(self, lowest: str) -> None:
        self._lowest = LEVELS.index(lowest)
        # Of the hidden message: its last line, its lines, and its open braces.
        self._last, self._lines, self._open = "", 0, 0

    def hides(self, line: str) -> bool:
        """Return whether a line is hidden; call it for each line, in their order."""
        level = level_of(line)
        if level is None:
            is_hidden = self._continues(line)
        else:
            self._lines = self._open = 0
            is_hidden = LEVELS.index(level) < self._lowest
        self._last = line
        self._lines = self._lines + 1 if is_hidden else 0
        self._open += line.count("{") - line.count("}")
        return is_hidden

    def _continues(self, line: str) -> bool:
        """Return whether a line without a level continues a hidden message."""
        if not self._lines or line == _TRACEBACK:
            return False
        if _SECOND.match(line) or self._last == _INSTRUCTIONS:
            return True
        is_open = self._open > 0 and self._lines < _MAX_LINES
        return is_open and _OF_PROTO.match(line) is not None
