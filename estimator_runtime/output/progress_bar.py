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
from collections.abc import Callable, Iterator
from typing import Any

from estimator_runtime.output import terminal
from estimator_runtime.output.stdout_above_bar import Room
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
    displays: dict[str, type[Bar] | type[ProgressLines] | None] = {
        "bar": Bar,
        "plain": ProgressLines,
        "none": None,
    }
    return displays[mode]


class Bar:
    """A progress bar that is redrawn in place, with all other output above it.

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

        self._room = Room(Quiet, sys.stderr if stream is None else stream)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_log_above(self._room))
            self._bar = Quiet(
                initial=first.step,
                total=first.last_step,
                unit="step",
                file=stream,
                **_width(stream),
                mininterval=0,
            )
            self._log = stack.pop_all()
        # After the bar is made, because the bar needs the original standard error.
        self._room.take_streams()
        atexit.register(self.close)  # the process may exit while its session is open

    def show(self, progress: Progress) -> None:
        """Draw the bar."""
        self._bar.total = progress.last_step
        self._bar.set_postfix(progress.remarks(), refresh=False)
        self._bar.update(progress.step - self._bar.n)
        self._bar.refresh()

    def close(self) -> None:
        """Leave the bar in place, and restore the streams of log and program."""
        atexit.unregister(self.close)
        if not self._room.is_open():
            return
        # Restore the log's streams outside the bar's lock, because a thread that logs
        # holds the lock of a handler while it waits for that of the bar.
        with self._log, self._room.locked() as is_ours:
            try:
                if is_ours:
                    self._bar.close()
                else:
                    self._bar.disable = True  # because closing would wait for the lock
            finally:
                self._room.close()


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

    def show(self, progress: Progress) -> None:
        """Write a line, if it is time and the step has changed."""
        secs = self._clock() - self._shown_at
        if secs < _LINE_SECS or progress.step == self._shown.step:
            return
        rate = (progress.step - self._shown.step) / secs
        self._shown, self._shown_at = progress, self._clock()
        stream = sys.stderr if self._stream is None else self._stream
        if stream is None:  # the process was started without standard error
            return
        stream.write(f"{_line(progress, rate)}\n")
        stream.flush()

    def close(self) -> None:
        """Do nothing; every line is complete."""


def _line(progress: Progress, rate: float) -> str:
    parts = [f"step {progress.step}"]
    if progress.last_step is not None:
        parts[0] += f" of {progress.last_step}"
    parts.append(f"{rate:.4g} steps/s")
    parts += [f"{name} {text}" for name, text in progress.remarks().items()]
    left = time_left(progress.step, progress.last_step, rate)
    if left is not None:
        parts.append(f"{left} left")
    return ", ".join(parts)


def _width(stream: Any) -> dict[str, Any]:
    """Return tqdm's arguments for a bar as wide as the terminal."""
    # Pseudo-terminals of some containers have 0 columns, where tqdm would draw nothing.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if not os.get_terminal_size((stream or sys.stderr).fileno()).columns:
            return {"ncols": 79, "nrows": 20}
    return {"dynamic_ncols": True}


@contextlib.contextmanager
def _log_above(room: Room) -> Iterator[None]:
    """Redirect log handlers that write to the terminal, so that they write above a bar.

    Only the streams of the handlers change within this context. The handlers
    themselves, their levels, filters and formats stay those of the program.
    """
    handlers = [
        (handler, handler.stream)
        for logger in (logging.root, *logging.root.manager.loggerDict.copy().values())
        for outer in getattr(logger, "handlers", ())  # a placeholder has none
        # absl's handler, which `tf.compat.v1.app.run` installs, writes through another.
        if isinstance(
            handler := getattr(outer, "python_handler", outer), logging.StreamHandler
        )
        and (handler.stream is sys.stdout or handler.stream is sys.stderr)
    ]
    for handler, stream in handlers:
        _replace_stream(handler, stream, room.above(stream))
    try:
        yield
    finally:
        for handler, stream in handlers:
            _replace_stream(handler, room.above(stream), stream)


def _replace_stream(handler: logging.StreamHandler, old: Any, new: Any) -> None:
    """Replace the stream of a handler, unless the program has replaced it itself."""
    handler.acquire()  # so that no record is being written
    try:
        if handler.stream is old:
            # Not setStream, because it flushes, which fails for some streams.
            with contextlib.suppress(AttributeError):  # a subclass may compute it
                handler.stream = new
    finally:
        handler.release()
