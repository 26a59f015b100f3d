"""What a person sees of a job."""

from estimator_runtime import folding
from estimator_runtime.launch import view
from estimator_runtime.launch.preamble import Preamble


class Screen:
    """The lines of a job's tasks, how far it is, and at its end what was left out.

    Attributes:
        console: The `Console`.
    """

    def __init__(self, console, presentation):
        """Know the `Console`, and the `Presentation` of the job."""
        self.console, self._presentation = console, presentation
        self._preamble = Preamble(presentation.expects_gpu)
        self._watches = []
        self._view = view.Nothing()

    def open(self, watches, status):
        """Show the job of these tasks.

        Args:
            watches: The `Watch` of every task.
            status: The `Status` of the job.
        """
        self._watches = watches
        self.console.introduce([str(watch.task) for watch in watches])
        self._view = view.choose(self._presentation.progress, self.console, status)

    def write(self, task, line, is_error):
        """Show a line of a task, if it is worth it."""
        if not (is_error and self._leaves_out(line)):
            self.console.write(str(task), line, is_error)

    def write_of_parent(self, line):
        """Show a line of the process that starts the tasks; any thread may."""
        if not self._leaves_out(line):
            self.console.say(line)

    def show(self, now):
        """Show how far the job is, if it is time."""
        self._view.show(now)

    def close(self):
        """Take away what is not to stay, and say what was left out."""
        self.console.status([])
        warnings = sum(watch.folded for watch in self._watches)
        if warnings or self._preamble.count:
            self.console.say(folding.summary(warnings, self._preamble.count))

    def _leaves_out(self, line):
        return not self._presentation.is_verbose and self._preamble.takes(line)
