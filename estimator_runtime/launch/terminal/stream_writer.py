"""Writes to streams whose reader may be slow, without waiting for it."""

import atexit
import collections
import contextlib
import io
import os
import threading
import time
import weakref

# In characters: from the first on the reader is behind, from the second on lines are
# left out.
_BEHIND = 1 << 20
_MAX_WAITING = 8 << 20
_LEFT_OUT = "... lines are left out here, which nobody has read in time ...\n"
_IDLE_SECS = 1.0
_RETRY_SECS = 0.05
_EXIT_SECS = 1.0

_writers: weakref.WeakSet = weakref.WeakSet()


def without_waiting(*streams):
    """Give streams that write to these, without waiting for those who read them.

    What is no file of the system never waits, and is given as it is. Streams of one
    file are given as one, also later, so that the order stays.
    """
    return [_writer_of(stream) for stream in streams]


def _writer_of(stream):
    raw = _raw(stream)
    if raw is None:
        return stream
    file = _file(raw)
    for writer in _writers:
        if writer.file() == file:
            return writer
    return StreamWriter(stream, raw)


def write_in_time(stream, text, timeout_secs=5.0):
    """Write a text, but wait for the stream's reader only so long."""
    if stream is None:  # this process was started without it
        return
    [writer] = without_waiting(stream)
    writer.write(text)
    if isinstance(writer, StreamWriter):
        writer.drain(timeout_secs)


def _raw(stream):
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, io.FileIO) and not raw.closed else None


def _file(raw):
    status = os.fstat(raw.fileno())
    return status.st_dev, status.st_ino


class StreamWriter:
    """A text stream that is written on a thread of its own, in order.

    It writes to the file itself: who waited for the reader with Python's lock of the
    stream would keep this process from its end.
    """

    def __init__(self, stream, raw):
        """Write to the `io.FileIO` that a stream is made of."""
        self._stream, self._raw = stream, raw
        self._texts: collections.deque[str] = collections.deque()
        self._waiting = 0
        self._leaves_out = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        with contextlib.suppress(OSError, ValueError):
            stream.flush()  # what was written to it before
        _writers.add(self)

    def write(self, text):
        """Let a text be written; of too many, some are left out, and it says so."""
        with self._changed:
            if self._waiting >= _MAX_WAITING:
                self._leaves_out = True
            if self._leaves_out:
                if self._waiting >= _BEHIND:
                    return
                self._leaves_out = False
                self._add(_LEFT_OUT)
            self._add(text)

    def is_behind(self):
        """Tell whether much waits for the reader."""
        return self._waiting >= _BEHIND

    def drain(self, timeout_secs):
        """Wait until all is written; what is not in time is left out."""
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

    def flush(self):
        """Do nothing: all is written as soon as it can be."""

    def isatty(self):
        """Tell whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self):
        """Give the file descriptor."""
        return self._raw.fileno()

    def file(self):
        """Give what tells the file from others; None once it is closed."""
        return None if self._raw.closed else _file(self._raw)

    @property
    def encoding(self):
        """The name of its encoding."""
        return self._stream.encoding

    def _add(self, text):
        self._texts.append(text)
        self._waiting += len(text)
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="estimator_runtime console", daemon=True
            )
            self._thread.start()

    def _serve(self):
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

    def _put(self, data):
        # Whoever read along may have left; the job goes on, and so do its log files.
        with contextlib.suppress(OSError, ValueError):
            while data:
                count = self._raw.write(data)
                if count is None:  # somebody has made the file one that never waits
                    time.sleep(_RETRY_SECS)
                else:
                    data = data[count:]


@atexit.register
def _drain_all():
    for writer in list(_writers):
        writer.drain(_EXIT_SECS)
