"""How many steps one run has, with the time that runs take passed in."""

import logging

import pytest

from estimator_runtime.loop.run_length import RunLength, RunLog

GRACE_SECS = 30


def lengths(length, secs_per_step, runs, due=None):
    """Return the lengths of runs whose steps take so long."""
    found = []
    for _ in range(runs):
        steps = length.up_to(due)
        found.append(steps)
        length.took(steps * secs_per_step, steps)
    return found


@pytest.mark.parametrize(
    ("steps_per_run", "due", "steps"),
    [(1, None, 1), (7, None, 7), (7, 100, 7), (7, 7, 7), (7, 3, 3), (7, 1, 1)],
)
def test_a_run_ends_at_the_next_step_that_a_hook_must_see(steps_per_run, due, steps):
    length = RunLength(steps_per_run, GRACE_SECS)
    lengths(length, secs_per_step=0, runs=4)  # has grown to all that it may have
    assert length.up_to(due) == steps


def test_a_run_has_no_more_steps_than_its_loop_can_count():
    length = RunLength(10**12, GRACE_SECS)
    assert lengths(length, secs_per_step=0, runs=40)[-1] == 2**31 - 1
    assert length.up_to(5) == 5


@pytest.mark.parametrize(
    ("steps_per_run", "secs_per_step", "expected"),
    [
        (7, 0.000_01, [1, 2, 4, 7, 7]),
        (100, 0.001, [1, 2, 4, 8, 16, 32, 64, 100, 100]),
        (100, 0.04, [1, 2, 4, 8, 16, 16]),  # 0.64 s
        (100, 0.4, [1, 2, 2, 2]),
        (100, 20, [1, 1, 1]),
    ],
)
def test_a_number_of_steps_is_the_most_that_runs_grow_to_within_a_second(
    steps_per_run, secs_per_step, expected
):
    length = RunLength(steps_per_run, GRACE_SECS)
    assert lengths(length, secs_per_step, len(expected)) == expected


@pytest.mark.parametrize(
    ("grace_secs", "steps"), [(1e9, 64), (30, 64), (3, 16), (1, 8), (0.1, 4), (0, 4)]
)
def test_no_run_takes_more_than_a_tenth_of_a_grace(grace_secs, steps):
    length = RunLength(1000, grace_secs)
    found = lengths(length, secs_per_step=0.01, runs=9)
    assert found[-1] == steps
    assert max(found) * 0.01 <= max(grace_secs / 10, 0.05)


def test_a_run_that_has_become_slow_shortens_the_next_one_at_once():
    length = RunLength(100, GRACE_SECS)
    assert lengths(length, 0.001, 8)[-1] == 100
    assert lengths(length, 0.1, 3) == [100, 5, 5]
    assert lengths(length, 0.001, 6) == [5, 10, 20, 40, 80, 100]


@pytest.mark.parametrize(
    ("grace_secs", "secs"), [(1e9, 0.1), (30, 0.1), (0.7, 0.07), (0.1, 0.05), (0, 0.05)]
)
def test_automatic_runs_take_a_tenth_of_a_second_or_of_a_grace(grace_secs, secs):
    length = RunLength("auto", grace_secs)
    assert (length.is_auto, length.is_single) == (True, False)
    assert length.secs == pytest.approx(secs)


class Often:
    """A hook that must see every fourth step."""


def announced(steps_per_run, secs_per_step, runs, caplog, every=None):
    """Return what the log says of runs beside a hook that must see each so-manyth step."""
    length = RunLength(steps_per_run, GRACE_SECS)
    log = RunLog([Often(), object()], length)
    step = 0
    with caplog.at_level(logging.INFO, "tensorflow"):
        for _ in range(runs):
            due = [None if every is None else every - step % every, None]
            steps = length.up_to(due[0])
            length.took(steps * secs_per_step, steps)
            log.end(steps, due)
            step += steps
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("steps_per_run", "secs_per_step", "every", "said"),
    [
        (
            7,
            0.001,
            5,
            "5 steps per session call: steps_per_run=7, and Often must see a step then",
        ),
        (
            100,
            0.4,
            None,
            "2 steps per session call: steps_per_run=100, and so many take 0.8 s",
        ),
        (
            1000,
            0.000_01,
            100,
            "100 steps per session call: steps_per_run=1000, and Often must see a step "
            "then",
        ),
    ],
)
def test_the_log_says_once_how_many_steps_run_in_a_call_and_why(
    steps_per_run, secs_per_step, every, said, caplog
):
    found = announced(steps_per_run, secs_per_step, 30, caplog, every)
    assert found == [f"running {said}"]
