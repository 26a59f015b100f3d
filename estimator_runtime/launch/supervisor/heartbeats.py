"""Notices tasks that give no sign of life: stopped, cut off, or stuck as a whole.

A task that sends no reports but uses the CPU is alive: it may be in a native call that
holds Python's lock, which takes as long as it takes. It is named, and never killed.
A call that holds the lock and only waits, as for a file on a dead network drive, cannot
be told from a hang.
"""

from estimator_runtime.launch.task import Task
from estimator_runtime.launch.watch import Watch
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
            timeout_secs = self._timeout_secs_of(watch)
            # At its end a task has nothing to compute: what still runs then is stuck.
            if watch.report.get("ending"):
                silent = now - watch.heard_at
            else:
                silent = now - watch.worked_at
                self._tell_of_work(watch, now, timeout_secs)
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

    def tell_of_stall(self, task: Task, report: dict) -> None:
        """Log that a task reports a training without steps, and where its threads are.

        Nobody is killed for it: a first step, or the wait for others, may take long.
        """
        if "stalled" not in report:
            return
        secs, stacks = report["stalled"]["secs"], report["stalled"]["stacks"]
        self._console.say(f"{task} has taken no step for {secs:.0f} s; it is at:")
        for number, places in enumerate(stacks):
            if number:
                self._console.say("and another of its threads at:")
            for place in places:
                self._console.say(f"  {place}")

    def _tell_of_work(self, watch: Watch, now: float, timeout_secs: float) -> None:
        """Name a task that only works on after the timeout, and at twice the time."""
        unheard = now - watch.heard_at
        is_due = unheard >= max(timeout_secs, 2 * watch.named_working_secs)
        if is_due and watch.worked_at > watch.heard_at:
            watch.named_working_secs = unheard
            self._console.say(
                f"{watch.task} has not reported for {unheard:.0f} s, but uses the CPU: "
                "still waiting; a native call may be holding the GIL"
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
