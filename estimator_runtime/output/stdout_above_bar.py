"""Output of a program while a bar is shown: whole lines, which go above the bar."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, SupportsIndex

from estimator_runtime.output import terminal

# Drawing holds the lock for microseconds. If it is held for longer, the terminal has
# stopped, or a process has ended without releasing the lock.
_LOCK_SECS = 5.0
_MANY_PARTS = 1000


class Room:
    """The space above a bar, where other output goes between two drawings of the bar.

    Args:
        bars: The class of the bar: tqdm's or a subclass of it.
        file: The stream that the bar is drawn on.
    """

    def __init__(self, bars: Any, file: Any) -> None:
        self._bars, self._file = bars, file
        self._process = os.getpid()
        self._is_open = True
        self._lock_secs = _LOCK_SECS
        self._above: dict[int, Above] = {}
        self._taken: dict[str, tuple[Any, Above]] = {}

    def above(self, stream: Any) -> Above:
        """Return the object to write to in place of a stream, always the same one."""
        if id(stream) not in self._above:
            self._above[id(stream)] = Above(stream, self)
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
    def made(self) -> Iterator[None]:
        """Erase the bars in this context; hold the lock when you enter it."""
        room = self._bars.external_write_mode(file=self._file, nolock=True)
        # The line of the program is written even if the bar cannot be drawn.
        with contextlib.suppress(OSError, ValueError):
            room.__enter__()
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                room.__exit__(None, None, None)


class Above:
    """A proxy of a stream that writes whole lines above the bars.

    On a terminal an incomplete line waits until it is complete or the bar is closed.

    Args:
        stream: The stream.
        room: The `Room` above the bar.
    """

    def __init__(self, stream: Any, room: Room) -> None:
        self._stream, self._room = stream, room
        self._waits = terminal.is_terminal(stream)
        self._rest: list[str] = []

    def write(self, text: str) -> Any:
        """Write the complete lines, and keep the rest until its line is complete.

        Returns:
            The number of characters, or what the stream itself returns.
        """
        caller = sys._getframe().f_back
        if (
            not self._room.is_open()
            or not isinstance(text, str)
            or _is_tqdm(caller)  # a bar of the program makes room itself
        ):
            return self._stream.write(text)
        with self._room.locked() as is_ours:
            if is_ours and self._room.is_open():
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
            with self._room.made():
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
