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
        self._is_gang = job.is_gang
        self._timeout_secs = job.evaluation_timeout_secs
        self._seen_by: float | None = None
        self._is_wait_named = False
        self._seen_at: float | None = None
        self._long_secs = _LONG_SECS

    @property
    def is_seen(self):
        """Whether the training has been found complete."""
        return self._seen_at is not None

    def goes_on_without(self, watch, now):
        """End those who cannot train without a task that has ended, and need not.

        When the one that leads is done, nobody would save what is trained after that:
        the others that the task leaves behind are killed, and do not come back.

        Args:
            watch: The `Watch` of the task; not one that is to be started again.
            now: The time.

        Returns:
            Whether the task is not missed.
        """
        is_server = watch.task.type == TaskType.PS
        if not is_server and (watch.has_ended_well or watch.is_dismissed):
            return True
        # A ps that leaves too early, however well, makes all the others hang.
        if not self._leader.has_succeeded:
            return False
        if is_server:
            self._dismiss(watch, self._trainers, now)
            return True
        # Its own error is for the user to see, also here. And where nobody says what is
        # trained, it may have had something else to do.
        is_let_go = (
            watch in self._trainers
            and self._has_trained
            and not watch.failure.is_of_program
        )
        if is_let_go:
            self._dismiss(watch, self._trainers if self._is_gang else [watch], now)
        return is_let_go

    def call_off_restart(self, watch, now):
        """Let a gang be, if its leader was done before it could be killed.

        Args:
            watch: The `Watch` of one that has ended, and was to be started again.
            now: The time.
        """
        if watch is self._leader and watch.has_ended_well and self._has_trained:
            watch.restart_at = None
            self._dismiss(watch, self._trainers, now)

    def refusal(self, watch):
        """Say why a task is not to be started again, budget or not; None if it may be.

        A gang is started again as a whole, with the one that leads.
        """
        is_over = self._leader.has_succeeded and self._has_trained
        if is_over and self._is_gang and watch in self._trainers:
            return f"{self._leader.task} is done, and would train again with it"
        return None

    @property
    def _has_trained(self):
        """Whether the one that leads has said that its training has ended."""
        return "trained" in self._leader.report

    def _dismiss(self, watch, trainers, now):
        """Expect nothing more of those `trainers` that are not done."""
        left = [
            each for each in trainers if not (each.has_succeeded or each.is_dismissed)
        ]
        for each in left:
            each.restart_at, each.is_dismissed = None, True
            if each.is_running:
                self._shutdown.kill(each, now)
        others = ", ".join(str(each.task) for each in left if each is not watch)
        if left:
            self._console.say(
                f"{watch.task} {watch.how_it_ended()} when the last checkpoint was "
                f"saved: {others or 'it'} cannot go on, and need not"
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
        waited = ", ".join(
            str(watch.task)
            for watch in self._watches
            if watch.is_running or watch.restart_at is not None
        )
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
