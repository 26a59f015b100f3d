"""Reads what the tasks of this machine write and report, and what their parent says."""

import json
import os
import selectors
import threading

from estimator_runtime.launch.streams import Lines, Reports
from estimator_runtime.launch.task import Ended, Lost

_CHUNK = 65536
_MAX_MESSAGE = 65536
# More than a pipe holds: of one that has ended, what somebody else still writes to its
# pipe is not waited for.
_LAST_CHUNKS = 32
# Until it is asked again whether there is room for lines.
_WAIT_SECS = 0.05


class Reader:
    """Makes events of it, on a thread of its own.

    The end of a run comes after all that it has written; so does the loss of them all.
    """

    def __init__(self, connection, events):
        """Begin.

        Args:
            connection: The socket to the parent; its end is the last that is read.
            events: The `Events` to put them in.
        """
        self._connection, self._events = connection, events
        self._runs = {}  # by the number that the parent knows
        self._streams = {}  # of those that have not ended
        self._selector = selectors.EpollSelector()
        self._selector.register(connection, selectors.EVENT_READ, None)
        # One in the other: lines can be left where they are, all at once.
        self._lines = selectors.EpollSelector()
        self._selector.register(self._lines, selectors.EVENT_READ, self._lines)
        self._thread = threading.Thread(
            target=self._read, name="estimator_runtime output", daemon=True
        )
        self._thread.start()

    def add(self, number, run, fds):
        """Read the pipes of a run that is about to start, and close them at its end.

        Args:
            number: That by which the parent knows it.
            run: The `Run`.
            fds: Its standard output, standard error and reports.
        """
        streams = (Lines(run, False), Lines(run, True), Reports(run))
        self._runs[number] = run
        for fd, stream in zip(fds, streams, strict=True):
            os.set_blocking(fd, False)
            stream.fd = fd
            selector = self._selector_of(stream)
            selector.register(fd, selectors.EVENT_READ, stream)
        # Now all of them can be closed, which the loss of the parent may do at once.
        self._streams[number] = streams

    def close(self, timeout_secs):
        """Wait for the end of the connection, and close all pipes."""
        self._thread.join(timeout_secs)
        if self._thread.is_alive():
            return
        for streams in self._streams.values():
            for stream in streams:
                self._close(stream)
        self._lines.close()
        self._selector.close()

    def _read(self):
        are_read = True
        while True:
            if are_read != self._events.takes_lines():
                are_read = not are_read
                if are_read:
                    self._selector.register(
                        self._lines, selectors.EVENT_READ, self._lines
                    )
                else:
                    self._selector.unregister(self._lines)
            for key, _ in self._selector.select(None if are_read else _WAIT_SECS):
                if key.data is self._lines:
                    self._read_lines()
                elif key.data is not None:
                    self._drain(key.data)
                elif not self._hear():
                    return

    def _read_lines(self):
        for key, _ in self._lines.select(0):
            self._drain(key.data)

    def _selector_of(self, stream):
        return self._selector if isinstance(stream, Reports) else self._lines

    def _hear(self):
        """Take one message of the parent; False if it is gone."""
        try:
            message = self._connection.recv(_MAX_MESSAGE)
        except OSError:
            message = b""
        if not message:
            for number in list(self._streams):
                self._finish(number)
            self._events.put(Lost(reason="the parent of the tasks is gone"))
            return False
        notice = json.loads(message)
        number = notice["ended"]
        self._finish(number)
        status, cause = notice["status"], notice.get("cause")
        self._events.put(Ended(run=self._runs[number], status=status, cause=cause))
        return True

    def _finish(self, number):
        """Pass on the last that a run has written."""
        for stream in self._streams.pop(number):
            self._drain(stream, _LAST_CHUNKS)
            for event in stream.feed(b""):
                self._events.put(event)
            self._close(stream)

    def _drain(self, stream, chunks=1):
        """Pass on what a stream has, as far as that is so many chunks."""
        for _ in range(chunks):
            if stream.fd is None:
                return
            try:
                data = os.read(stream.fd, _CHUNK)
            except BlockingIOError:
                return
            for event in stream.feed(data):
                self._events.put(event)
            if not data:
                self._close(stream)

    def _close(self, stream):
        if stream.fd is not None:
            self._selector_of(stream).unregister(stream.fd)
            os.close(stream.fd)
            stream.fd = None
