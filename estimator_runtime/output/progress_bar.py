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
from collections.abc import Callable, Iterable
from typing import Any

from estimator_runtime.output import relay, terminal
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
    if mode == "bar" and relay.makes_json():
        mode = "plain"
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

        file = sys.stderr if stream is None else stream
        self._bar = Quiet(
            initial=first.step,
            total=first.last_step,
            unit="step",
            file=stream,
            **_width(stream),
            mininterval=0,
        )
        # After the bar is made, because the bar needs the original standard error.
        self._streams = _StreamsAbove(file)
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
        try:
            self._bar.close()
        finally:
            self._streams.restore()


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


class _StreamsAbove:
    """Replaces the streams of the log and of the program: they write above the bar.

    Of the log's handlers only the streams change. Their levels, filters and formats
    stay those of the program. The standard streams are replaced if they are terminals,
    and the bar's is one too.

    Args:
        file: The stream that the bar is drawn on.
    """

    def __init__(self, file: Any) -> None:
        self._places: list[tuple[Any, str, Any]] = [
            (handler, "stream", handler.stream) for handler in _handlers()
        ]
        if terminal.is_terminal(file):
            self._places += [
                (sys, name, stream)
                for name in ("stdout", "stderr")
                if terminal.is_terminal(stream := getattr(sys, name))
            ]
        streams = {id(stream): stream for _, _, stream in self._places}
        self._above = {key: _StreamAboveBar(it, file) for key, it in streams.items()}
        for holder, name, stream in self._places:
            _replace(holder, name, stream, self._above[id(stream)])
        _shown.add(self)

    def restore(self) -> None:
        """Restore the streams, and write the text of incomplete lines."""
        _shown.discard(self)
        places, self._places = self._places, []
        for holder, name, stream in places:
            _replace(holder, name, self._above[id(stream)], stream)
        for above in self._above.values():
            above.close()


# The streams of the bars that this process shows.
_shown: set[_StreamsAbove] = set()


def _restore_in_child() -> None:
    """Take the bars from a forked process, where the lock may be held for ever."""
    for streams in tuple(_shown):
        streams.restore()


os.register_at_fork(after_in_child=_restore_in_child)


class _StreamAboveBar:
    """Writes whole lines to a stream, above the bars, which tqdm erases and redraws.

    The start of a line waits for the rest of it, or for the end of the bar.

    Args:
        stream: The stream.
        file: The stream that the bars are drawn on.
    """

    def __init__(self, stream: Any, file: Any) -> None:
        self._stream, self._file = stream, file
        self._rest = ""
        self._is_open = True
        self._process = os.getpid()

    def write(self, text: str) -> int:
        """Write the complete lines; return the number of characters in the text."""
        from tqdm import tqdm

        # A line that is redrawn in place, as a bar of the program, waits for nothing.
        if not self._is_open or text.startswith("\r"):
            return self._stream.write(text)
        with tqdm.get_lock():
            lines, end, self._rest = f"{self._rest}{text}".rpartition("\n")
            if end:
                with tqdm.external_write_mode(file=self._file, nolock=True):
                    self._stream.write(lines + end)
                    self._stream.flush()  # before the bar is redrawn below
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, which include their line breaks."""
        self.write("".join(lines))

    def close(self) -> None:
        """Write the incomplete line; what still uses this object writes through it."""
        self._is_open = False
        if os.getpid() == self._process:  # else the parent process writes it
            with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
                self._stream.write(self._rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _handlers() -> list[Any]:
    """Return the handlers of all loggers that write to a standard stream."""
    return [
        handler
        for logger in (logging.root, *logging.root.manager.loggerDict.copy().values())
        for outer in getattr(logger, "handlers", ())  # a placeholder has none
        # absl's handler, which `tf.compat.v1.app.run` installs, writes through another.
        if isinstance(
            handler := getattr(outer, "python_handler", outer), logging.StreamHandler
        )
        and (handler.stream is sys.stdout or handler.stream is sys.stderr)
    ]


def _replace(holder: Any, name: str, old: Any, new: Any) -> None:
    """Replace a stream, unless the program has replaced it itself."""
    if getattr(holder, name) is old:
        # Not `setStream`, because it flushes, which fails for some streams.
        with contextlib.suppress(AttributeError):  # a subclass may compute it
            setattr(holder, name, new)
