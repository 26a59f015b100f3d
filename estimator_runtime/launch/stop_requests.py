"""Which of the signals that come to a launcher ask for the end of its job."""

import signal

# Nobody presses Ctrl-C twice within it. But `timeout` of the coreutils sends its signal
# to a program and then to its group, and wrappers pass on what the terminal has sent.
_SAME_SECS = 0.1


class StopRequests:
    """Tells requests for the end from signals that only come along with one.

    The first signal is a request, for an end in order; each later request is for an end
    at once.
    """

    def __init__(self):
        self._taken: dict[int, float] = {}  # signals to the time of the last

    def take(self, number, now):
        """Tell whether a signal is a request.

        A terminal or a session that closes hurries nobody: SIGHUP comes before SIGTERM,
        or with it, and not from a person who cannot wait.

        Args:
            number: That of the signal: SIGINT, SIGTERM or SIGHUP.
            now: The time in seconds.
        """
        before = self._taken
        if number == signal.SIGHUP and before:
            return False
        if number in before and now - before[number] < _SAME_SECS:
            return False
        self._taken = {**before, number: now}
        return number != signal.SIGTERM or set(before) != {signal.SIGHUP}


def exit_status_of(number):
    """Give the exit status of a job that a signal has ended: SIGHUP is as SIGTERM."""
    return 128 + (signal.SIGTERM if number == signal.SIGHUP else number)
