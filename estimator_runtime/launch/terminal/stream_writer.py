"""A writer that never waits for the reader of its stream.

A thread of its own does the writing. If the reader is too slow, lines are left out.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import io
import os
import threading
import time
import weakref
from typing import Any, TextIO

# Characters that wait to be written: from _BEHIND on the reader counts as behind, and
# from _MAX_WAITING on lines are left out.
_BEHIND = 1 << 20
_MAX_WAITING = 8 << 20
_LEFT_OUT = "... lines left out here: they were not read in time ...\n"
_IDLE_SECS = 1.0
_RETRY_SECS = 0.05
_EXIT_SECS = 1.0

_writers: weakref.WeakSet[StreamWriter] = weakref.WeakSet()


def without_waiting(stream: TextIO | None) -> Any:
    """Return a stream that writes to this one without waiting for its reader.

    Returns:
        A `StreamWriter`, or the stream itself if it is not a file of the operating
        system, because such a stream never waits. Streams of the same file share one
        writer, which keeps their output in order.
    """
    raw = _raw(stream)
    if raw is None:
        return stream
    file = _file(raw)
    for writer in _writers:
        if writer.file() == file:
            return writer
    return StreamWriter(stream, raw)


def write_in_time(stream: TextIO | None, text: str, timeout_secs: float = 5.0) -> None:
    """Write a text, waiting for the reader of the stream up to a timeout.

    What is not read in time is left out. A stream of None gets nothing.
    """
    if stream is None:  # this process was started without it
        return
    writer = without_waiting(stream)
    writer.write(text)
    if isinstance(writer, StreamWriter):
        writer.drain(timeout_secs)


def _raw(stream: Any) -> io.FileIO | None:
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, io.FileIO) and not raw.closed else None


def _file(raw: io.FileIO) -> tuple[int, int]:
    status = os.fstat(raw.fileno())
    return status.st_dev, status.st_ino


class StreamWriter:
    """A text stream whose output is written in order by a thread of its own.

    It flushes the stream at first, and then writes to the raw file below it. A thread
    that waited for the reader while it held the lock of Python's buffered stream would
    keep this process from exiting.
    """

    def __init__(self, stream: Any, raw: io.FileIO) -> None:
        self._stream, self._raw = stream, raw
        self._texts: collections.deque[str] = collections.deque()
        self._waiting = 0
        self._leaves_out = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        with contextlib.suppress(OSError, ValueError):
            stream.flush()  # earlier output comes first
        _writers.add(self)

    def write(self, text: str) -> None:
        """Queue a text to be written.

        If too much is waiting, it is left out, and a line in the output says so.
        """
        with self._changed:
            if self._waiting >= _MAX_WAITING:
                self._leaves_out = True
            if self._leaves_out:
                if self._waiting >= _BEHIND:
                    return
                self._leaves_out = False
                self._add(_LEFT_OUT)
            self._add(text)

    def is_behind(self) -> bool:
        """Return whether much text is waiting for the reader."""
        return self._waiting >= _BEHIND

    def drain(self, timeout_secs: float) -> None:
        """Wait until everything is written; leave out what is not written in time."""
        deadline = time.monotonic() + timeout_secs
        with self._changed:
            while self._waiting:
                left = deadline - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._waiting -= sum(map(len, self._texts))
                if self._texts:
                    self._texts.clear()
                    self._leaves_out = False
                    self._add(_LEFT_OUT)
                return

    def flush(self) -> None:
        """Do nothing, because every text is written as soon as possible."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._raw.fileno()

    def file(self) -> tuple[int, int] | None:
        """Return the device and inode of the file; None once it is closed."""
        return None if self._raw.closed else _file(self._raw)

    @property
    def encoding(self) -> str:
        """The name of the stream's encoding."""
        return self._stream.encoding

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self._waiting += len(text)
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="estimator_runtime console", daemon=True
            )
            self._thread.start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._texts:
                    if not self._changed.wait(_IDLE_SECS) and not self._texts:
                        self._thread = None
                        return
                text = self._texts.popleft()
            self._put(text.encode(self.encoding or "utf-8", "backslashreplace"))
            with self._changed:
                self._waiting -= len(text)
                self._changed.notify_all()

    def _put(self, data: bytes) -> None:
        # The reader may have closed the stream. The job and its log files continue.
        with contextlib.suppress(OSError, ValueError):
            while data:
                count = self._raw.write(data)
                if count is None:  # another process has made the file non-blocking
                    time.sleep(_RETRY_SECS)
                else:
                    data = data[count:]


@atexit.register
def _drain_all() -> None:
    for writer in list(_writers):
        writer.drain(_EXIT_SECS)
