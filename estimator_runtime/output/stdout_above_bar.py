"""What a program writes while a bar is drawn: lines of their own, above the bar."""

import contextlib
import os
import sys

from estimator_runtime import terminal

# Who draws has the lock for microseconds; longer is a terminal that stands still, or a
# lock that a process has taken with it into its end.
_LOCK_SECS = 5.0
_MANY_PARTS = 1000


class Room:
    """Makes room above a bar, between two drawings of it.

    Args:
        bars: The class of the bar, tqdm's or one below it.
        file: The stream that the bar is drawn on.
    """

    def __init__(self, bars, file):
        self._bars, self._file = bars, file
        self._process = os.getpid()
        self._is_open = True
        self._lock_secs = _LOCK_SECS
        self._above = {}
        self._taken = {}

    def above(self, stream):
        """Give what is to be written to in the place of a stream: one for each."""
        if id(stream) not in self._above:
            self._above[id(stream)] = Above(stream, self)
        return self._above[id(stream)]

    def take_streams(self):
        """Take the place of those standard streams that are terminals, as the bar's."""
        if not terminal.is_terminal(self._file):
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if terminal.is_terminal(stream):
                self._taken[name] = stream, self.above(stream)
        for name, (_, above) in self._taken.items():
            setattr(sys, name, above)

    def close(self):
        """Give the streams back, and write what has waited for the end of its line."""
        for name, (stream, above) in self._taken.items():
            if getattr(sys, name) is above:  # else the program's own stays
                setattr(sys, name, stream)
        try:
            for above in self._above.values():
                # A terminal that has gone shows nothing more.
                with contextlib.suppress(OSError, ValueError):
                    above.write_rest()
        finally:
            # Whoever still has one of ours, as a Tee, writes through it from here on.
            self._is_open = False

    def is_open(self):
        """Tell whether the bar is there.

        A forked process has none: it has no thread that draws, and maybe a lock that
        nobody will ever release.
        """
        return self._is_open and os.getpid() == self._process

    @contextlib.contextmanager
    def locked(self):
        """Let nobody draw in this context; give whether that worked within 5 s."""
        lock = self._bars.get_lock()
        with contextlib.ExitStack() as stack:
            is_ours = all(  # of the two that tqdm's has it tells nobody whether it got
                _acquire(one, self._lock_secs, stack)
                for one in getattr(lock, "locks", [lock])
            )
            # Not each line is to wait for a lock that is lost.
            self._lock_secs = _LOCK_SECS if is_ours else 0
            yield is_ours

    @contextlib.contextmanager
    def made(self):
        """Wipe the bars away in this context, which is to be a locked one."""
        room = self._bars.external_write_mode(file=self._file, nolock=True)
        # The program's line is written also where the bar cannot be drawn.
        with contextlib.suppress(OSError, ValueError):
            room.__enter__()
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                room.__exit__(None, None, None)


class Above:
    """A stream as it is, but that whole lines go above the bars.

    On a terminal the start of a line waits for its end, or for that of the bar.

    Args:
        stream: The stream.
        room: The `Room` that the bar makes.
    """

    def __init__(self, stream, room):
        self._stream, self._room = stream, room
        self._waits = terminal.is_terminal(stream)
        self._rest = []

    def write(self, text):
        """Write the lines that are whole; the rest waits."""
        caller = sys._getframe().f_back
        if (
            not self._room.is_open()
            or not isinstance(text, str)
            or _is_tqdm(caller)  # the program's own bar makes its room itself
        ):
            return self._stream.write(text)
        with self._room.locked() as is_ours:
            if is_ours and self._room.is_open():
                self._write_lines(text)
            else:
                self.write_rest()
                self._stream.write(text)
        return len(text)

    def writelines(self, lines):
        """Write lines, which have their ends."""
        self.write("".join(lines))

    def write_rest(self):
        """Write what waits for the end of its line."""
        rest, self._rest = self._rest, []
        if rest:
            self._stream.write("".join(rest))
            self._flush()

    def _flush(self):
        getattr(self._stream, "flush", lambda: None)()

    def _write_lines(self, text):
        end = text.rfind("\n") + 1 if self._waits else len(text)
        if end:
            rest, self._rest = self._rest, []
            with self._room.made():
                self._stream.write("".join([*rest, text[:end]]))
                self._flush()  # before the bar is drawn below
        if text[end:]:
            self._keep(text[end:])

    def _keep(self, text):
        if not text.isascii():  # what cannot be encoded fails here, not lines later
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            text.encode(encoding, getattr(self._stream, "errors", None) or "strict")
        self._rest.append(text)
        if len(self._rest) > _MANY_PARTS:
            # As of a line that the program draws anew in place: the last is seen.
            line = "".join(self._rest)
            self._rest = [line[max(line.rfind("\r", 0, -1), 0) :]]

    def __eq__(self, other):
        # tqdm asks whether two bars are drawn on the same stream.
        return self is other or self._stream == other

    def __hash__(self):
        return hash(self._stream)

    def __reduce_ex__(self, protocol):
        """Let cloudpickle take standard output and error by their names, as always."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is self:
                return getattr, (sys, name)
        return self._stream.__reduce_ex__(protocol)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def _is_tqdm(frame):
    if frame is None:  # as when Python itself shows what ends the program
        return False
    return str(frame.f_globals.get("__name__")).startswith("tqdm.")


def _acquire(lock, secs, stack):
    got = lock.acquire(True, secs)
    if got:
        stack.callback(lock.release)
    return got
