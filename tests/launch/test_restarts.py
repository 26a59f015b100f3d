"""Who is started again, how often, and after which wait."""

import pytest

from estimator_runtime.launch.restarts import Budget, Failure
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.watch import Watch

_KILLED = Failure(status=-9, step=100)


def test_the_first_restart_is_immediate_and_each_later_one_waits_twice_as_long():
    budget = Budget(max_restarts=9)
    waits = [budget.spend(_KILLED) for _ in range(9)]
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_task_that_is_killed_is_restarted_until_the_budget_is_used_up():
    budget = Budget(max_restarts=2)
    refusals = []
    for _ in range(3):
        refusals.append(budget.refusal(_KILLED))
        budget.spend(_KILLED)
    assert refusals == [None, None, "2 restarts used up"]


@pytest.mark.parametrize("status", [143, 130])
def test_a_task_that_a_signal_has_stopped_is_restarted_each_time_as_a_killed_one(
    status,
):
    budget, failure = Budget(max_restarts=2), Failure(status=status, step=100)
    refusals = []
    for _ in range(3):
        refusals.append(budget.refusal(failure))
        budget.spend(failure)
    assert refusals == [None, None, "2 restarts used up"]


def test_a_restart_that_was_in_vain_is_made_good_once():
    budget, in_vain = Budget(max_restarts=2), Failure(status=-1, is_in_vain=True)
    told = []
    for failure in (_KILLED, in_vain, in_vain, in_vain, in_vain):
        told.append((budget.refusal(failure), budget.spend(failure), budget.used))
    assert told == [
        (None, 0.0, 1),
        (None, 0.0, 1),
        (None, 1.0, 2),
        (None, 0.0, 2),
        ("2 restarts used up", 2.0, 3),
    ]


def test_a_first_start_that_was_in_vain_is_not_made_good():
    budget, in_vain = Budget(max_restarts=0), Failure(status=-1, is_in_vain=True)
    assert budget.refusal(in_vain) == "no restarts"


def test_a_restart_was_in_vain_if_its_address_was_lost_before_any_sign_of_life():
    watch = Watch(Task(type="worker", index=0), max_restarts=3)
    told = []
    for has_lived, is_displaced in ((False, True), (True, True), (False, False)):
        watch.start(now=0.0)
        if has_lived:
            watch.hear({}, now=1.0)
        watch.end(-1, is_displaced=is_displaced)
        told.append(watch.failure.is_in_vain)
    assert told == [True, False, False]


def test_a_budget_of_zero_allows_no_restart():
    assert Budget(max_restarts=0).refusal(_KILLED) == "no restarts"


@pytest.mark.parametrize(
    "error",
    [
        "NanLossDuringTrainingError",
        "ConfigError",
        "SyntaxError",
        "EstimatorRuntimeError",
    ],
)
def test_an_error_that_would_repeat_is_not_tried_again(error):
    refusal = Budget(max_restarts=3).refusal(Failure(status=1, error=error))
    assert refusal == f"{error} would only repeat"


@pytest.mark.parametrize(
    "first, second, refusal",
    [
        (("KeyError", 40), ("KeyError", 40), "the same failure as the last time at step 40"),
        (("KeyError", 40), ("KeyError", 90), None),
        (("KeyError", 40), ("ValueError", 40), None),
        (("UnavailableError", 40), ("UnavailableError", 40), None),
        (("PeerTimeoutError", None), ("PeerTimeoutError", None), None),
        ((None, None), (None, None), "the same failure as the last time"),
    ],
)  # fmt: skip
def test_a_program_that_fails_twice_in_the_same_way_has_failed(first, second, refusal):
    budget = Budget(max_restarts=3)
    for error, step in (first, second):
        last = budget.refusal(Failure(status=1, error=error, step=step))
    assert last == refusal


def test_an_evaluator_that_fails_at_another_checkpoint_has_not_failed_twice():
    watch = Watch(Task(type="evaluator", index=0), max_restarts=3)
    refusals = []
    for step in (100, 200, 200):
        watch.start(now=0.0)
        watch.hear({"metrics": {"loss": 0.5, "global_step": float(step)}}, now=1.0)
        watch.hear({"error": "InternalError"}, now=2.0)
        watch.end(1)
        refusals.append(watch.budget.refusal(watch.failure))
    assert refusals == [None, None, "the same failure as the last time at step 200"]


def test_a_loss_that_is_nan_is_told_from_other_failures():
    errors = ("NanLossDuringTrainingError", "KeyError", None)
    told = [Failure(status=1, error=error).is_nan for error in errors]
    assert told == [True, False, False]
