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
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, SupportsIndex

from estimator_runtime.output import relay, terminal
from estimator_runtime.output.terminal import time_left

_LINE_SECS = 10.0
# Drawing holds the lock for microseconds. If it is held for longer, the terminal has
# stopped, or a process has ended without releasing the lock.
_LOCK_SECS = 5.0
_MANY_PARTS = 1000


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

        self._output = BarOutput(Quiet, sys.stderr if stream is None else stream)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_log_above(self._output))
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
        self._output.take_streams()
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
        if not self._output.is_open():
            return
        # Restore the log's streams outside the bar's lock, because a thread that logs
        # holds the lock of a handler while it waits for that of the bar.
        with self._log, self._output.locked() as is_ours:
            try:
                if is_ours:
                    self._bar.close()
                else:
                    self._bar.disable = True  # because closing would wait for the lock
            finally:
                self._output.close()


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
def _log_above(output: BarOutput) -> Iterator[None]:
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
        _replace_stream(handler, stream, output.above(stream))
    try:
        yield
    finally:
        for handler, stream in handlers:
            _replace_stream(handler, output.above(stream), stream)


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


class BarOutput:
    """The other output while a bar is shown: it goes above the bar, line by line.

    Args:
        bars: The class of the bar: tqdm's or a subclass of it.
        file: The stream that the bar is drawn on.
    """

    def __init__(self, bars: Any, file: Any) -> None:
        self._bars, self._file = bars, file
        self._process = os.getpid()
        self._is_open = True
        self._lock_secs = _LOCK_SECS
        self._above: dict[int, StreamAboveBar] = {}
        self._taken: dict[str, tuple[Any, StreamAboveBar]] = {}

    def above(self, stream: Any) -> StreamAboveBar:
        """Return the object to write to in place of a stream, always the same one."""
        if id(stream) not in self._above:
            self._above[id(stream)] = StreamAboveBar(stream, self)
        return self._above[id(stream)]

    def take_streams(self) -> None:
        """Replace the standard streams that are terminals, if the bar's is one too."""
        if not terminal.is_terminal(self._file):
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if terminal.is_terminal(stream):
                self._taken[name] = stream, self.above(stream)
        for name, (_, above) in self._taken.items():
            setattr(sys, name, above)

    def close(self) -> None:
        """Restore the streams, and write the text of incomplete lines."""
        for name, (stream, above) in self._taken.items():
            if getattr(sys, name) is above:  # else the program has replaced it
                setattr(sys, name, stream)
        try:
            for above in self._above.values():
                # The terminal may be gone.
                with contextlib.suppress(OSError, ValueError):
                    above.write_rest()
        finally:
            # An object that still holds one of ours, such as a tee, writes straight to
            # the original stream from here on.
            self._is_open = False

    def is_open(self) -> bool:
        """Return whether the bar is shown by this process.

        A forked process has no bar: it has no thread that draws, and may have inherited
        a lock that no thread will ever release.
        """
        return self._is_open and os.getpid() == self._process

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the lock of the bar in this context, so that nothing is drawn.

        Yields:
            Whether the lock was acquired, within 5 s.
        """
        lock = self._bars.get_lock()
        with contextlib.ExitStack() as stack:
            # tqdm's lock consists of two, and its `acquire` returns no result.
            is_ours = all(
                _acquire(one, self._lock_secs, stack)
                for one in getattr(lock, "locks", [lock])
            )
            # If the lock is lost, do not wait for it at each line.
            self._lock_secs = _LOCK_SECS if is_ours else 0
            yield is_ours

    @contextlib.contextmanager
    def bars_erased(self) -> Iterator[None]:
        """Erase the bars in this context; hold the lock when you enter it."""
        erased = self._bars.external_write_mode(file=self._file, nolock=True)
        # The line of the program is written even if the bar cannot be drawn.
        with contextlib.suppress(OSError, ValueError):
            erased.__enter__()
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                erased.__exit__(None, None, None)


class StreamAboveBar:
    """A proxy of a stream that writes whole lines above the bars.

    On a terminal an incomplete line waits until it is complete or the bar is closed.

    Args:
        stream: The stream.
        output: The `BarOutput` of the bar.
    """

    def __init__(self, stream: Any, output: BarOutput) -> None:
        self._stream, self._output = stream, output
        self._waits = terminal.is_terminal(stream)
        self._rest: list[str] = []

    def write(self, text: str) -> Any:
        """Write the complete lines, and keep the rest until its line is complete.

        Returns:
            The number of characters, or what the stream itself returns.
        """
        caller = sys._getframe().f_back
        if (
            not self._output.is_open()
            or not isinstance(text, str)
            or _is_tqdm(caller)  # a bar of the program erases itself
        ):
            return self._stream.write(text)
        with self._output.locked() as is_ours:
            if is_ours and self._output.is_open():
                self._write_lines(text)
            else:
                self.write_rest()
                self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, which include their line breaks."""
        self.write("".join(lines))

    def write_rest(self) -> None:
        """Write the text of the incomplete line."""
        rest, self._rest = self._rest, []
        if rest:
            self._stream.write("".join(rest))
            self._flush()

    def _flush(self) -> None:
        getattr(self._stream, "flush", lambda: None)()

    def _write_lines(self, text: str) -> None:
        end = text.rfind("\n") + 1 if self._waits else len(text)
        if end:
            rest, self._rest = self._rest, []
            with self._output.bars_erased():
                self._stream.write("".join([*rest, text[:end]]))
                self._flush()  # before the bar is redrawn below
        if text[end:]:
            self._keep(text[end:])

    def _keep(self, text: str) -> None:
        # Text that cannot be encoded fails here, and not at the end of its line.
        if not text.isascii():
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            text.encode(encoding, getattr(self._stream, "errors", None) or "strict")
        self._rest.append(text)
        if len(self._rest) > _MANY_PARTS:
            # The program redraws a line in place, and only the last version is seen.
            line = "".join(self._rest)
            self._rest = [line[max(line.rfind("\r", 0, -1), 0) :]]

    def __eq__(self, other: object) -> bool:
        # tqdm compares streams to find out whether two bars are drawn on the same one.
        return self is other or self._stream == other

    def __hash__(self) -> int:
        return hash(self._stream)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Reduce standard output and error to their names, for cloudpickle."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is self:
                return getattr, (sys, name)
        return self._stream.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_tqdm(frame: FrameType | None) -> bool:
    if frame is None:  # as when Python itself prints the error that ends the program
        return False
    return str(frame.f_globals.get("__name__")).startswith("tqdm.")


def _acquire(lock: Any, secs: float, stack: contextlib.ExitStack) -> bool:
    got = lock.acquire(True, secs)
    if got:
        stack.callback(lock.release)
    return got
