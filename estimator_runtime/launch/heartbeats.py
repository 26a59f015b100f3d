"""Notices tasks that give no sign of life: stopped, cut off, or stuck as a whole."""

# A task is named in the log when it has been silent for this part of the timeout.
_NAMED_AT = 1 / 3


class Heartbeats:
    """Names silent tasks first, and kills them later; then they have failed."""

    def __init__(self, timeout_secs, console, shutdown):
        """Know the timeout, where to say it, and who can kill."""
        self._timeout_secs = timeout_secs
        self._console, self._shutdown = console, shutdown

    def check(self, watches, now):
        """Look at all `watches` that run."""
        for watch in watches:
            if watch.killed_for is not None:
                continue  # it is about to end
            silent = now - watch.heard_at
            if silent >= self._timeout_secs:
                watch.killed_for = f"gave no sign of life for {silent:.0f} s"
                self._console.say(f"{watch.task} {watch.killed_for}: killing it")
                self._shutdown.kill(watch, now)
            elif silent >= self._timeout_secs * _NAMED_AT and not watch.is_named_silent:
                watch.is_named_silent = True
                self._console.say(
                    f"{watch.task} has given no sign of life for {silent:.0f} s (is it "
                    f"stopped, or cut off?); after {self._timeout_secs:g} s it counts "
                    "as failed"
                )
