"""The progress of a training, as a bar on a terminal or as lines at intervals."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib.util
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from estimator_runtime.output import terminal
from estimator_runtime.output.json_log import JsonStream
from estimator_runtime.output.terminal import time_left

_LINE_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a training.

    Attributes:
        step: The global step.
        last_step: The global step at which the training ends, or None if unknown.
        loss: The loss that was logged last, or None.
        saved_step: The global step of the newest checkpoint, or None.
    """

    step: int
    last_step: int | None = None
    loss: float | None = None
    saved_step: int | None = None

    def remarks(self) -> dict[str, str]:
        """Return what is known besides the step, as text by name."""
        found = {}
        if self.loss is not None:
            found["loss"] = f"{self.loss:.4g}"
        if self.saved_step is not None:
            found["saved"] = f"step {self.saved_step}"
        return found


def choose(mode: str, stream: Any = None) -> type[Bar] | type[ProgressLines] | None:
    """Return the display class that a mode stands for.

    Args:
        mode: "bar", "plain", "none" or "auto". "auto" is "bar" on a terminal and in a
            notebook if tqdm is installed, and "plain" otherwise.
        stream: The stream to show the progress on; None is standard error.

    Returns:
        `Bar`, `ProgressLines`, or None for the mode "none".
    """
    if mode == "auto":
        stream = sys.stderr if stream is None else stream
        seen = terminal.is_terminal(stream) or "ipykernel" in sys.modules
        can_draw = importlib.util.find_spec("tqdm") is not None
        mode = "bar" if seen and can_draw else "plain"
    if mode == "none":
        return None
    is_bar = mode == "bar" and not isinstance(sys.stderr, JsonStream)
    return Bar if is_bar else ProgressLines


class Bar:
    """A progress bar that is redrawn in place, below the lines of the log.

    The bar gives way to the log: it is erased before a handler writes a line, and drawn
    again when there is progress.

    Args:
        first: The `Progress` that the bar starts from.
        stream: The stream to draw on; None is standard error, or the notebook.
    """

    def __init__(self, first: Progress, stream: Any = None) -> None:
        from tqdm import TqdmWarning

        with warnings.catch_warnings():
            # A notebook without ipywidgets gets a bar of text, without an explanation.
            warnings.simplefilter("ignore", TqdmWarning)
            from tqdm.auto import tqdm

        class Quiet(tqdm):
            monitor_interval = 0  # no monitor thread of tqdm's

            def refresh(self, nolock: bool = False, lock_args: Any = None) -> Any:
                with self.get_lock():  # tqdm never releases it if drawing fails
                    return super().refresh(nolock=True)

        self._bar = Quiet(
            initial=first.step,
            total=first.last_step,
            unit="step",
            file=stream,
            **_width(stream),
            mininterval=0,
        )
        self._process = os.getpid()
        self._handlers = _log_handlers()
        for handler in self._handlers:
            handler.addFilter(self._give_way)
        atexit.register(self.close)  # the process may exit while its session is open

    def show(self, progress: Progress) -> None:
        """Draw the bar."""
        self._bar.total = progress.last_step
        self._bar.set_postfix(progress.remarks(), refresh=False)
        self._bar.update(progress.step - self._bar.n)
        self._bar.refresh()

    def close(self) -> None:
        """Leave the bar in place."""
        atexit.unregister(self.close)
        for handler in self._handlers:
            handler.removeFilter(self._give_way)
        self._bar.close()

    def _give_way(self, _record: logging.LogRecord) -> bool:
        # In a forked child there is no bar, and its lock may be held forever.
        if os.getpid() == self._process:
            with contextlib.suppress(OSError, ValueError), self._bar.get_lock():
                self._bar.clear(nolock=True)
        return True


def _log_handlers() -> list[Any]:
    """Return the handlers of all loggers, and that of loggers without one."""
    found = [
        handler
        for logger in (logging.root, *logging.root.manager.loggerDict.copy().values())
        for handler in getattr(logger, "handlers", ())  # a placeholder has none
    ]
    # absl's handler, which `tf.compat.v1.app.run` installs, only wraps another.
    return [
        getattr(handler, "python_handler", handler)
        for handler in (*found, logging.lastResort)
        if handler is not None
    ]


class ProgressLines:
    """A line of progress every ten seconds; none for a training that ends before.

    Args:
        first: The `Progress` that it starts from.
        stream: The stream to write to; None is standard error.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        first: Progress,
        stream: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._shown = first
        self._shown_at = clock()
        self._is_first = True

    def show(self, progress: Progress) -> None:
        """Write a line, if it is time and the step has changed."""
        secs = self._clock() - self._shown_at
        if secs < _LINE_SECS or progress.step == self._shown.step:
            return
        rate = (progress.step - self._shown.step) / secs
        is_first, self._is_first = self._is_first, False
        self._shown, self._shown_at = progress, self._clock()
        stream = sys.stderr if self._stream is None else self._stream
        if stream is None:  # the process was started without standard error
            return
        # The first interval has the start of the session in it, and shows no pace.
        pace = None if is_first else rate
        left = time_left(progress.step, progress.last_step, pace)
        stream.write(f"{_line(progress, rate)}{f', {left} left' if left else ''}\n")
        stream.flush()

    def close(self) -> None:
        """Do nothing; every line is complete."""


def _line(progress: Progress, rate: float) -> str:
    parts = [f"step {progress.step}"]
    if progress.last_step is not None:
        parts[0] += f" of {progress.last_step}"
    parts.append(f"{rate:.4g} steps/s")
    parts += [f"{name} {text}" for name, text in progress.remarks().items()]
    return ", ".join(parts)


def _width(stream: Any) -> dict[str, Any]:
    """Return tqdm's arguments for a bar as wide as the terminal."""
    # Pseudo-terminals of some containers have 0 columns, where tqdm would draw nothing.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if not os.get_terminal_size((stream or sys.stderr).fileno()).columns:
            return {"ncols": 79, "nrows": 20}
    return {"dynamic_ncols": True}
