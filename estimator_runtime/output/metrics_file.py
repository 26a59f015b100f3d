"""A file with the numbers of a training, one JSON object a line, for other tools.

docs/log.md has the schema. In one process the training itself writes the file; of a
cluster, the launcher does.
"""

from __future__ import annotations

import json
import logging
import math
import numbers
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from estimator_runtime.errors import ConfigError
from estimator_runtime.output.progress_bar import Progress

VARIABLE = "ESTIMATOR_RUNTIME_METRICS"
_logger = logging.getLogger(__name__)


def path_in(environ: Mapping[str, str]) -> str | None:
    """Return the path of the file that is wanted, or None."""
    return environ.get(VARIABLE) or None


def create(environ: Mapping[str, str]) -> None:
    """Create the file that is wanted, unless it exists.

    Raises:
        ConfigError: If it is a pipe or cannot be written.
    """
    path = path_in(environ)
    if path is None:
        return
    try:
        if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
            raise ConfigError(
                f"--metrics or {VARIABLE}: {path!r} is a pipe, whose reader could stop "
                "the training; give a file, and follow it with tail -F"
            )
        open(path, "a").close()
    except OSError as error:
        raise ConfigError(
            f"--metrics or {VARIABLE}: {path!r} cannot be written: {error.strerror}; "
            "give another file"
        ) from error


class MetricsFile:
    """Appends lines to the file; any thread may call the methods.

    A line is written in one piece, so programs may follow the file, and several
    trainings may share it. If it cannot be written any more, that is logged once, and
    the training goes on.

    Args:
        path: Path of the file.
        clock: Returns the seconds since 1970.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = os.path.abspath(path), clock
        self._lock = threading.Lock()
        self._is_given_up = False

    def write(self, event: str, step: int | None, **values: Any) -> None:
        """Append a line.

        Args:
            event: "progress", "evaluation", "checkpoint" or "restart".
            step: The global step that it is about.
            **values: More fields; those that are None are left out.
        """
        record = {"time": self._clock(), "event": event, "step": step, **values}
        data = (json.dumps(_plain(record), default=str) + "\n").encode()
        with self._lock:
            if self._is_given_up:
                return
            try:
                with open(self._path, "ab", buffering=0) as file:
                    file.write(data)
            except OSError as error:
                self._is_given_up = True
                _logger.warning(
                    "the metrics in %s stop here: %s", self._path, error.strerror
                )

    def evaluation(self, metrics: Mapping[str, Any]) -> None:
        """Append the metrics of an evaluation, as `Estimator.evaluate` returns them."""
        found = {
            name: float(value)
            for name, value in metrics.items()
            if isinstance(value, numbers.Real)  # as NumPy's numbers are
        }
        step = found.pop("global_step", None)
        self.write("evaluation", None if step is None else int(step), metrics=found)


class MetricsDisplay:
    """Writes the progress of a training in this process; a display of `WatchedHook`.

    Args:
        first: The `Progress` at the start.
        file: The file.
        clock: Returns the time in seconds.
        every_secs: The least time between two lines of progress.
    """

    def __init__(
        self,
        first: Progress,
        file: MetricsFile,
        clock: Callable[[], float] = time.monotonic,
        every_secs: float = 1.0,
    ) -> None:
        self._file, self._clock, self._every_secs = file, clock, every_secs
        self._written, self._written_at = first, clock()
        self._seen, self._saved_step = first, first.saved_step

    def show(self, progress: Progress) -> None:
        """Append a line if there is news, and it is time."""
        self._seen = progress
        if progress.saved_step not in (None, self._saved_step):
            self._saved_step = progress.saved_step
            self._file.write("checkpoint", progress.saved_step)
        if self._clock() - self._written_at >= self._every_secs:
            self._write()

    def close(self) -> None:
        """Append the last step."""
        self._write()

    def _write(self) -> None:
        now, seen = self._clock(), self._seen
        if seen.step == self._written.step:
            return
        secs = now - self._written_at
        rate = (seen.step - self._written.step) / secs if secs > 0 else None
        self._file.write(
            "progress",
            seen.step,
            last_step=seen.last_step,
            loss=seen.loss,
            steps_per_sec=rate,
        )
        self._written, self._written_at = seen, now


def evaluated(metrics: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Append the metrics of an evaluation to the file that is wanted, if any."""
    path = path_in(environ)
    if path is not None and metrics:
        MetricsFile(path).evaluation(metrics)


def _plain(value: Any) -> Any:
    """Return a value for JSON, without what is not known.

    JSON has no NaN and no infinity: those become null.
    """
    if isinstance(value, dict):
        known = {name: each for name, each in value.items() if each is not None}
        return {name: _plain(each) for name, each in known.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
