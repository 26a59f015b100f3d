"""Reads what the tasks of this machine write and report, and what their parent says."""

import json
import os
import selectors
import threading
import time

from estimator_runtime.launch import descendants
from estimator_runtime.launch.streams import Lines, Reports
from estimator_runtime.launch.task import Ended, Lost, Working

_CHUNK = 65536
_MAX_MESSAGE = 65536
# More than a pipe holds: of one that has ended, what somebody else still writes to its
# pipe is not waited for.
_LAST_CHUNKS = 32
# Until it is asked again whether there is room for lines.
_WAIT_SECS = 0.05
# Between two looks at whether a task without reports uses the CPU.
LOOK_SECS = 2.0
# A task that uses this part of one core works. One of many on a busy machine may get no
# more; the threads of TensorFlow that only wait use less.
_WORKING_PART = 0.05


class Reader:
    """Makes events of it, on a thread of its own.

    The end of a run comes after all that it has written; so does the loss of them all.

    A task cannot report while native code holds Python's lock. So those that are silent
    are judged by the CPU time of their processes, and count as alive while it grows.
    """

    def __init__(self, connection, events, look_secs=LOOK_SECS):
        """Begin.

        Args:
            connection: The socket to the parent; its end is the last that is read.
            events: The `Events` to put them in.
            look_secs: Seconds between two looks at the CPU time of silent tasks.
        """
        self._connection, self._events = connection, events
        self._look_secs, self._looked_at = look_secs, time.monotonic()
        self._pids: dict[int, int] = {}  # of those that run, by the parent's number
        self._cpu_secs: dict[int, float] = {}  # at the last look, of those silent then
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

    def pid_of(self, number: int) -> int | None:
        """Return the pid of a run, or None before it has started and after its end."""
        return self._pids.get(number)

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
            self._look()
            wait_secs = self._look_secs if are_read else _WAIT_SECS
            for key, _ in self._selector.select(wait_secs):
                if key.data is self._lines:
                    self._read_lines()
                elif key.data is not None:
                    self._drain(key.data)
                elif not self._hear():
                    return

    def _look(self):
        """Report the tasks that sent nothing since the last look, but use the CPU."""
        elapsed = time.monotonic() - self._looked_at
        if elapsed < self._look_secs:
            return
        self._looked_at += elapsed
        before, self._cpu_secs = self._cpu_secs, {}
        for number, pid in self._pids.items():
            reports = self._streams[number][-1]
            has_news, reports.has_news = reports.has_news, False
            stat = None if has_news else descendants.stat_of(pid)
            if stat is None:
                continue
            self._cpu_secs[number] = stat.cpu_secs
            used = stat.cpu_secs - before.get(number, stat.cpu_secs)
            if used >= _WORKING_PART * elapsed:
                self._events.put(Working(run=self._runs[number]))

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
        if "started" in notice:
            self._pids[notice["started"]] = notice["pid"]
            return True
        number = notice["ended"]
        self._finish(number)
        status, cause = notice["status"], notice.get("cause")
        self._events.put(Ended(run=self._runs[number], status=status, cause=cause))
        return True

    def _finish(self, number):
        """Pass on the last that a run has written."""
        self._pids.pop(number, None)
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
