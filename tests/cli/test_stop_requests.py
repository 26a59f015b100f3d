"""Which signals end a job in order, and which at once."""

from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU

import pytest

from estimator_runtime.launch.starter import exit_status_of
from estimator_runtime.signals.inbox import StopRequests


def _requests(*signals):
    """Return the places of those that are requests, of signals and their times."""
    requests = StopRequests()
    taken = [requests.take(number, now) for number, now in signals]
    return [place for place, is_taken in enumerate(taken) if is_taken]


@pytest.mark.parametrize("between_secs", [0.0, 0.001, 5.0])
def test_a_session_that_closes_and_then_ends_hurries_nobody(between_secs):
    assert _requests((SIGHUP, 1.0), (SIGTERM, 1.0 + between_secs)) == [0]
    assert _requests((SIGTERM, 1.0), (SIGHUP, 1.0 + between_secs)) == [0]
    assert _requests((SIGHUP, 1.0), (SIGHUP, 1.0 + between_secs)) == [0]


def test_after_both_the_next_signal_is_a_second_request():
    for second in (SIGTERM, SIGINT):
        assert _requests((SIGHUP, 1.0), (SIGTERM, 2.0), (second, 3.0)) == [0, 2]
    assert _requests((SIGHUP, 1.0), (SIGINT, 2.0)) == [0, 1]


def test_two_signals_of_a_kind_each_are_two_requests_however_fast():
    assert _requests((SIGINT, 1.0), (SIGTERM, 1.001)) == [0, 1]


def test_the_exit_status_is_that_of_a_shell_and_a_notice_is_as_sigterm():
    numbers = (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU)
    assert [exit_status_of(n) for n in numbers] == [130, 143, 143, 143, 143]
