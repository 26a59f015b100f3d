"""Notices tasks that give no sign of life: stopped, cut off, or stuck as a whole."""

from estimator_runtime.waits import IMPORT_SECS

# A task is named in the log when it has been silent for this part of the timeout.
_NAMED_AT = 1 / 3
# Freeing what a process has takes long where it has much, or the machine is busy.
_END_SECS = 120.0


class Heartbeats:
    """Names silent tasks first, and kills them later; then they have failed."""

    def __init__(self, timeout_secs, console, shutdown):
        """Know the timeout, where to say it, and who can kill."""
        self._timeout_secs = timeout_secs
        self._console, self._shutdown = console, shutdown

    def check(self, watches, now):
        """Look at those of the `watches` that run."""
        for watch in watches:
            if not watch.is_running or watch.killed_for is not None:
                continue  # it has ended, or is about to
            silent = now - watch.heard_at
            timeout_secs = self._timeout_secs_of(watch)
            if silent >= timeout_secs:
                watch.killed_for = f"gave no sign of life for {silent:.0f} s"
                self._console.say(f"{watch.task} {watch.killed_for}: killing it")
                self._shutdown.kill(watch, now)
            elif silent >= timeout_secs * _NAMED_AT and not watch.is_named_silent:
                watch.is_named_silent = True
                self._console.say(
                    f"{watch.task} has given no sign of life for {silent:.0f} s (is it "
                    f"stopped, or cut off?); after {timeout_secs:g} s it counts as "
                    "failed"
                )

    def _timeout_secs_of(self, watch):
        """Give how long a task may be silent: longer at its start and at its end.

        No thread of python's, that of the reports neither, runs while TensorFlow is
        loaded, and when the program is done.
        """
        if watch.report.get("ending"):
            return max(self._timeout_secs, _END_SECS)
        if watch.report.get("imported"):
            return self._timeout_secs
        return max(self._timeout_secs, IMPORT_SECS)
