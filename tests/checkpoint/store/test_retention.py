"""Which checkpoints stay when a new one has come."""

import math

import pytest

from estimator_runtime.checkpoint.store.series import Policy, RetentionPlan


def saved(*times):
    return [(f"at {at}", at) for at in times]


@pytest.mark.parametrize(
    ("newest", "times", "kept", "gone"),
    [
        (3, [1], [1], []),
        (3, [1, 2, 3], [1, 2, 3], []),
        (3, [1, 2, 3, 4], [2, 3, 4], [1]),
        (1, [1, 2], [2], [1]),
        # The number has become smaller since the last run.
        (2, [1, 2, 3, 4, 5], [4, 5], [1, 2, 3]),
        (0, [5], [], []),
        (0, [1, 2, 5], [1, 2], []),
    ],
)
def test_the_newest_stay(newest, times, kept, gone):
    plan = Policy(newest=newest, every_secs=1000).plan(saved(*times), preserved_at=0)
    assert plan == RetentionPlan(
        kept=tuple(saved(*kept)),
        gone=tuple(saved(*gone)),
        preserved_at=0,
    )


@pytest.mark.parametrize("pace", [7, 33, 60, 93, 130])
def test_a_steady_training_keeps_those_that_a_saver_of_tensorflow_keeps(pace):
    every = 100
    policy = Policy(newest=1, every_secs=every)
    kept, preserved_at, gone = [], 0.0, set()
    stocks, next_time = set(), every
    for at in range(0, 2000, pace):
        plan = policy.plan([*kept, *saved(at)], preserved_at)
        kept, preserved_at = list(plan.kept), plan.preserved_at
        gone.update(dict(plan.gone))
    for at in range(0, kept[0][1], pace):  # as in Saver._MaybeDeleteOldCheckpoints
        if at > next_time:
            next_time += every
        else:
            stocks.add(f"at {at}")
    assert gone == stocks


def test_a_pause_keeps_one_and_not_one_for_each_hour_of_it():
    plan = Policy(newest=1, every_secs=10).plan(saved(1000, 1001, 1002), 0.0)
    assert (plan.gone, plan.preserved_at) == ((("at 1001", 1001),), 1000)


def test_without_a_time_between_them_all_stay():
    plan = Policy(newest=1, every_secs=0).plan(saved(1000, 1001, 1002), 0.0)
    assert (plan.gone, plan.preserved_at) == ((), 1001)


def test_what_the_program_has_marked_to_stay_stays():
    plan = Policy(newest=1, every_secs=10).plan(saved(math.inf, 1, 2), 0.0)
    assert plan == RetentionPlan(
        kept=(("at 2", 2),), gone=(("at 1", 1),), preserved_at=0.0
    )
