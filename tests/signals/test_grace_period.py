"""The time that a training has to end: it stands still while anybody holds it."""

import pytest

from estimator_runtime.signals.grace import Grace


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def grace(now):
    return Grace(clock=lambda: now[0])


def test_before_it_begins_and_when_it_is_forgotten_nothing_is_waited_for(grace, now):
    now[0] += 1000
    assert (grace.is_over, grace.next_look_secs()) == (False, None)
    grace.begin(30)
    grace.forget()
    now[0] += 1000
    assert (grace.is_over, grace.next_look_secs()) == (False, None)


def test_it_is_over_when_its_seconds_are(grace, now):
    grace.begin(30)
    now[0] += 29
    assert (grace.is_over, grace.next_look_secs()) == (False, 1)
    now[0] += 1
    assert (grace.is_over, grace.next_look_secs()) == (True, 0)


def test_the_time_of_a_hold_is_not_counted_whenever_it_begins(grace, now):
    grace.hold("a save")
    grace.begin(30)
    now[0] += 100
    assert (grace.is_over, grace.next_look_secs()) == (False, 30)
    grace.release("a save")
    now[0] += 20
    grace.hold("a later one")
    now[0] += 100
    grace.release("a later one")
    assert grace.next_look_secs() == 10
    now[0] += 10
    assert grace.is_over


def test_it_stands_still_until_the_last_holder_lets_go(grace, now):
    grace.begin(0)
    for holder in ("one", "other"):
        grace.hold(holder)
    grace.release("one")
    grace.release("one")
    assert not grace.is_over
    assert grace.next_look_secs() == 0.5  # nobody says when it is let go of
    grace.release("other")
    assert grace.is_over


def test_all_holds_can_be_ended_at_once(grace, now):
    grace.begin(5)
    grace.hold("what never lets go")
    now[0] += 100
    grace.release_all()
    assert not grace.is_over
    now[0] += 5
    assert grace.is_over
