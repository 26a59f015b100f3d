"""Which log lines of the tasks are shown, by their level."""

from __future__ import annotations

from collections.abc import Mapping

from estimator_runtime.errors import ConfigError
from estimator_runtime.output.relay import level_of

VARIABLE = "ESTIMATOR_RUNTIME_LOG_LEVEL"
# From the lowest to the highest.
LEVELS = ("debug", "info", "warning", "error")
_OPENING, _CLOSING = "([{", ")]}"
# A message that opens more brackets than it closes goes on for so many lines at most.
_MAX_LINES = 200


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

    A line without a level is shown, unless it continues a hidden message: one that has
    opened more brackets than it has closed, such as the config that an Estimator logs.

    Args:
        lowest: The lowest level that is shown; see `LEVELS`.
    """

    def __init__(self, lowest: str) -> None:
        self._lowest = LEVELS.index(lowest)
        self._open = self._lines = 0

    def hides(self, line: str) -> bool:
        """Return whether a line is hidden; call it for each line, in their order."""
        level = level_of(line)
        if level is not None:
            self._open = self._lines = 0
            if LEVELS.index(level) >= self._lowest:
                return False
        elif self._open <= 0 or self._lines >= _MAX_LINES:
            return False
        self._lines += 1
        self._open += sum(map(line.count, _OPENING)) - sum(map(line.count, _CLOSING))
        return True
