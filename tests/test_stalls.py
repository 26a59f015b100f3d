"""A training that takes no step is told of."""

import pytest

from estimator_runtime.reporting import StepWatch


@pytest.fixture
def watch():
    """Return (a watch of ten seconds, a function that looks at a time)."""
    now = [0.0]
    watch = StepWatch(10.0, lambda: now[0])

    def look(at):
        now[0] = at
        return watch.check()

    return watch, look


def test_a_stall_is_told_of_whenever_it_has_lasted_twice_as_long(watch):
    watch, look = watch
    assert look(100.0) is None
    watch.expect()
    times = (101.0, 110.0, 111.0, 112.0, 120.0, 121.0, 140.0, 141.0)
    assert [look(at) for at in times] == [None, None, 10, None, None, 20, None, 40]


def test_a_step_or_the_end_of_the_training_begins_the_time_anew(watch):
    watch, look = watch
    watch.expect()
    assert [look(at) for at in (1.0, 11.0)] == [None, 10]
    watch.move()
    assert [look(at) for at in (12.0, 21.0, 22.0)] == [None, None, 10]
    watch.stop()
    assert [look(at) for at in (23.0, 99.0)] == [None, None]
    watch.expect()
    assert [look(at) for at in (100.0, 109.0, 110.0)] == [None, None, 10]


def test_a_limit_of_zero_is_for_never():
    now = [0.0]
    watch = StepWatch(0.0, lambda: now[0])
    watch.expect()
    for now[0] in (1.0, 1e9):
        assert watch.check() is None
