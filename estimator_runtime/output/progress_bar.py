"""How far a training is, on a terminal or in lines: drawn for people."""

import atexit
import contextlib
import dataclasses
import importlib.util
import logging
import os
import sys
import time

from estimator_runtime import terminal
from estimator_runtime.hooks.bar_streams import Room
from estimator_runtime.time_left import time_left

_LINE_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a training is.

    Attributes:
        step: Global step.
        last_step: Global step at which it ends, or None if nobody knows.
        loss: The loss that was logged last, or None.
        saved_step: Global step of the newest checkpoint, or None.
    """

    step: int
    last_step: int | None = None
    loss: float | None = None
    saved_step: int | None = None

    def remarks(self):
        """Say what is known beside the step, as name to text."""
        found = {}
        if self.loss is not None:
            found["loss"] = f"{self.loss:.4g}"
        if self.saved_step is not None:
            found["saved"] = f"step {self.saved_step}"
        return found


def choose(mode, stream=None):
    """Give the class of displays that a mode stands for.

    Args:
        mode: "bar", "plain", "none", or "auto": a bar on a terminal and in a notebook,
            else lines.
        stream: Where it would be shown; standard error if None.

    Returns:
        `Bar`, `Lines`, or None for none.
    """
    if mode == "auto":
        stream = sys.stderr if stream is None else stream
        seen = terminal.is_terminal(stream) or "ipykernel" in sys.modules
        can_draw = importlib.util.find_spec("tqdm") is not None
        mode = "bar" if seen and can_draw else "plain"
    return {"bar": Bar, "plain": Lines, "none": None}[mode]


class Bar:
    """A bar that is drawn anew in place; what else is written there goes above it.

    Args:
        first: `Progress` that it starts from.
        stream: Where it is drawn; standard error, or the notebook, if None.
    """

    def __init__(self, first, stream=None):
        from tqdm.auto import tqdm

        class Quiet(tqdm):
            monitor_interval = 0  # no thread of tqdm's beside ours

            def refresh(self, nolock=False, lock_args=None):
                with self.get_lock():  # tqdm's keeps it for ever if a drawing fails
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
        # After the bar, which takes the stream that standard error is.
        self._room.take_streams()
        atexit.register(self.close)  # a process may end while its session is open

    def show(self, progress):
        """Draw it."""
        self._bar.total = progress.last_step
        self._bar.set_postfix(progress.remarks(), refresh=False)
        self._bar.update(progress.step - self._bar.n)
        self._bar.refresh()

    def close(self):
        """Leave it as it is, and give the log and the program their streams back."""
        atexit.unregister(self.close)
        if not self._room.is_open():
            return
        # Outside of the lock: who logs has a handler's, and then waits for the bar's.
        with self._log, self._room.locked() as is_ours:
            try:
                if is_ours:
                    self._bar.close()
                else:
                    self._bar.disable = True  # closing would wait for the lock too
            finally:
                self._room.close()


class Lines:
    """A line now and then: none at all for a training of seconds.

    Args:
        first: `Progress` that it starts from.
        stream: Where it is written; standard error if None.
        clock: Gives seconds.
    """

    def __init__(self, first, stream=None, clock=time.monotonic):
        self._stream = stream
        self._clock = clock
        self._shown = first
        self._shown_at = clock()

    def show(self, progress):
        """Write a line, if it is time."""
        secs = self._clock() - self._shown_at
        if secs < _LINE_SECS or progress.step == self._shown.step:
            return
        rate = (progress.step - self._shown.step) / secs
        self._shown, self._shown_at = progress, self._clock()
        stream = sys.stderr if self._stream is None else self._stream
        if stream is None:  # as in a process that was started without standard error
            return
        stream.write(f"{_line(progress, rate)}\n")
        stream.flush()

    def close(self):
        """Nothing is left to be done."""


def _line(progress, rate):
    parts = [f"step {progress.step}"]
    if progress.last_step is not None:
        parts[0] += f" of {progress.last_step}"
    parts.append(f"{rate:.4g} steps/s")
    parts += [f"{name} {text}" for name, text in progress.remarks().items()]
    left = time_left(progress.step, progress.last_step, rate)
    if left is not None:
        parts.append(f"{left} left")
    return ", ".join(parts)


def _width(stream):
    """Give tqdm's settings of how wide to draw: as wide as the terminal is now."""
    # The pseudo-terminals of some containers have 0 columns; tqdm would draw nothing.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if not os.get_terminal_size((stream or sys.stderr).fileno()).columns:
            return {"ncols": 79, "nrows": 20}
    return {"dynamic_ncols": True}


@contextlib.contextmanager
def _log_above(room):
    """Let what the loggers write to the terminal go above the bar, in this context.

    Only the streams of their handlers are others meanwhile: levels, filters and formats
    are the program's, and so is which handlers there are.
    """
    handlers = [
        (handler, handler.stream)
        for logger in (logging.root, *logging.root.manager.loggerDict.copy().values())
        for handler in getattr(logger, "handlers", ())  # a placeholder has none
        if isinstance(handler, logging.StreamHandler)
        and (handler.stream is sys.stdout or handler.stream is sys.stderr)
    ]
    for handler, stream in handlers:
        _replace_stream(handler, stream, room.above(stream))
    try:
        yield
    finally:
        for handler, stream in handlers:
            _replace_stream(handler, room.above(stream), stream)


def _replace_stream(handler, old, new):
    """Give a handler another stream, unless the program has given it one meanwhile."""
    handler.acquire()  # no record is being written now
    try:
        if handler.stream is old:
            # Not setStream, which flushes, and fails where the stream cannot be.
            with contextlib.suppress(AttributeError):  # a class that chooses it itself
                handler.stream = new
    finally:
        handler.release()
