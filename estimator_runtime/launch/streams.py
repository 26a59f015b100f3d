"""What comes out of the pipes of a task, made into events."""

import json

from estimator_runtime.launch.task import Output, Reported

# A line that never ends is cut, so that it cannot fill the memory.
_MAX_LINE = 1 << 20


class Lines:
    """Cuts what a task writes into lines.

    Attributes:
        fd: The end of the pipe that is read, or None.
    """

    def __init__(self, run, is_error):
        """Know the `Run`, and whether it writes this to standard error."""
        self._run, self._is_error = run, is_error
        self._rest = b""
        self.fd = None

    def feed(self, data):
        """Give the events of the lines that are complete; all, without data."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > _MAX_LINE):
            lines.append(self._rest)
            self._rest = b""
        return [self._event(line) for line in lines]

    def _event(self, line):
        text = line.decode(errors="replace").rstrip("\r")
        return Output(run=self._run, line=text, is_error=self._is_error)


class Reports(Lines):
    """Reads reports instead of text.

    Attributes:
        has_news: Whether one has come since this was last set to False.
    """

    def __init__(self, run):
        super().__init__(run, is_error=False)
        self.has_news = False

    def _event(self, line):
        self.has_news = True
        try:
            return Reported(run=self._run, report=json.loads(line))
        except ValueError:  # cut off by the end of the task
            return Reported(run=self._run, report={})
