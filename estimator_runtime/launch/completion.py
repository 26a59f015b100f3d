"""The good end of a job: all have trained, the last step is saved, the others leave."""

from estimator_runtime.role import TaskType

# A shared folder may show a file some time after another machine has written it: NFS
# looks again for what is new in a folder after 30 to 60 s (acdirmin, acdirmax).
_SEEN_SECS = 70.0
# A wait for that is told of after so long.
_NAMED_SECS = 5.0
# An evaluator that still works is told of after so long, and whenever it is twice that.
_LONG_SECS = 60.0


class Completion:
    """Sees that a training is complete, and then lets those end who have served it."""

    def __init__(self, job, watches, trainers, record, shutdown, console):
        """Know all tasks.

        Args:
            job: The `Job`.
            watches: The `Watch` of every task.
            trainers: Those of them that train; the first of them leads.
            record: The `Record` of the job.
            shutdown: Its `Shutdown`.
            console: Where to say what is waited for.
        """
        self._console = console
        self._watches, self._trainers, self._record = watches, trainers, record
        self._leader, self._shutdown = trainers[0], shutdown
        self._timeout_secs = job.evaluation_timeout_secs
        self._seen_by: float | None = None
        self._is_wait_named = False
        self._seen_at: float | None = None
        self._long_secs = _LONG_SECS

    @property
    def is_seen(self):
        """Whether the training has been found complete."""
        return self._seen_at is not None

    @property
    def is_led_to_end(self):
        """Whether the one that leads is done: what comes after that nobody saves."""
        return self._leader.has_succeeded

    def dismiss_trainers(self, server, now):
        """Go on without those who still train, when a ps of theirs is gone.

        Without its variables they cannot, and what they train nobody would save.

        Args:
            server: The `Watch` of the ps.
            now: The time.
        """
        left = [
            watch
            for watch in self._trainers
            if not (watch.has_succeeded or watch.is_dismissed)
        ]
        for watch in left:
            watch.restart_at, watch.is_dismissed = None, True
            if watch.is_running:
                self._shutdown.kill(watch, now)
        if left:
            self._console.say(
                f"{server.task} {server.how_it_ended()} when the last checkpoint was "
                f"saved: {', '.join(str(watch.task) for watch in left)} cannot go on, "
                "and need not"
            )

    def advance(self, now):
        """Do what is next, if all have trained.

        Args:
            now: The time.

        Returns:
            What went wrong; None while nothing has.
        """
        if self._seen_at is not None:
            return self._wait_for_others(now - self._seen_at)
        if not all(watch.has_succeeded or watch.has_left for watch in self._trainers):
            return None
        missing = self._missing()
        if missing is not None:
            self._seen_by = self._seen_by or now + _SEEN_SECS
            left = self._seen_by - now
            if left <= _SEEN_SECS - _NAMED_SECS and not self._is_wait_named:
                self._is_wait_named = True
                self._console.say(
                    f"{missing}: waiting {left:.0f} s at most until its folder shows it"
                )
            return missing if left <= 0 else None
        self._seen_at = now
        for watch in self._watches:
            if watch.task.type == TaskType.PS:
                self._shutdown.release(watch, now)
        return None

    def _missing(self):
        """Say what is not saved, as far as that is known; None if all is."""
        expected = self._leader.report.get("trained")
        if expected is None or self._record.why_unknown() is not None:
            return None
        _, step = self._record.checkpoint()
        if step is not None and step >= expected:
            return None
        has = "there is no checkpoint" if step is None else f"the newest has {step}"
        return f"{self._leader.task} has saved step {expected}, but {has}"

    def _wait_for_others(self, secs):
        """Say who still works so long after the training; give what is wrong, or None.

        One that hangs as a whole is silent, and is ended for that.
        """
        waited = ", ".join(str(w.task) for w in self._watches if w.is_running)
        if self._timeout_secs is not None and secs >= self._timeout_secs:
            return (
                f"the training is done, but {waited} did not end within "
                f"{self._timeout_secs:g} s after it; --evaluation-timeout is that limit"
            )
        if waited and secs >= self._long_secs:
            self._long_secs = 2 * secs
            self._console.say(
                f"the training has been done for {secs:.0f} s: waiting for {waited}"
            )
        return None
