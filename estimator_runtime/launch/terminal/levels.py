"""Which log lines of the tasks are shown, by their level."""

from __future__ import annotations

from collections.abc import Mapping

from estimator_runtime.errors import ConfigError
from estimator_runtime.output.json_log import level_of

VARIABLE = "ESTIMATOR_RUNTIME_LOG_LEVEL"
# From the lowest to the highest.
LEVELS = ("debug", "info", "warning", "error")


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

    A line without a level is shown, unless it continues a hidden message: tasks begin
    the further lines of a message with a tab (see `log_filter.start`).

    Args:
        lowest: The lowest level that is shown; see `LEVELS`.
    """

    def __init__(self, lowest: str) -> None:
        self._lowest = LEVELS.index(lowest)
        self._is_hidden = False  # the last message

    def hides(self, line: str) -> bool:
        """Return whether a line is hidden; call it for each line, in their order."""
        level = level_of(line)
        if level is not None:
            self._is_hidden = LEVELS.index(level) < self._lowest
        elif not line.startswith("\t"):
            self._is_hidden = False
        return self._is_hidden
