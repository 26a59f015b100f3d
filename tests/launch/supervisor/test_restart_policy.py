"""Who is started again, how often, and after which wait."""

import concurrent.futures
import json
import os
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.training.basic_session_run_hooks import (
    NanLossDuringTrainingError,
)

from estimator_runtime import errors, reporting
from estimator_runtime.checkpoint.restore.session_creator import (
    MissingVariablesError,
)
from estimator_runtime.launch.supervisor.machine import TaskState
from estimator_runtime.launch.supervisor.restart_policy import Budget, Failure
from estimator_runtime.launch.task import Task
from estimator_runtime.reporting import StepWatch

_KILLED = Failure(status=-9, step=100)


@pytest.mark.parametrize("status", [-9, 143, 130])
def test_a_task_that_a_signal_has_ended_is_restarted_until_its_budget_is_used_up(
    status,
):
    budget, failure = Budget(max_restarts=2), Failure(status=status, step=100)
    refusals = []
    for _ in range(3):
        refusals.append(budget.refusal(failure))
        budget.spend(failure)
    assert refusals == [None, None, "2 restarts used up"]
    assert Budget(max_restarts=0).refusal(failure) == "no restarts"


def test_a_budget_is_refilled_by_progress_without_a_failure_for_long_enough():
    budget, used = Budget(max_restarts=2, refill_secs=100.0), []
    for step, now in ((10, 0), (20, 99), (30, 200), (40, 299), (50, 300), (60, 400)):
        if step in (20, 30):
            budget.spend(_KILLED)
        budget.advance("/m", step, float(now))
        used.append(budget.used)
    assert used == [0, 1, 2, 2, 0, 0]
    assert budget.delay_secs == 0.0  # as before the first one


def test_steps_that_a_run_repeats_do_not_refill_a_budget():
    budget = Budget(max_restarts=2, refill_secs=100.0)
    for start in (0.0, 1000.0):
        for step in (10, 20):
            budget.advance("/m", step, start + 20 * step)
        budget.spend(_KILLED)
    budget.advance("/m", 20, 5000.0)
    assert budget.used == 2
    # Another model begins at 0 again.
    budget.advance("/n", 1, 5000.0)
    budget.advance("/n", 2, 5100.0)
    assert budget.used == 0


class ConfigError(Exception):
    """A class of the program's, which has only its name from this package's."""


class AbortedError(Exception):
    """The same, with a name of TensorFlow's."""


def _reported(error):
    """Return what a task reports of an error."""
    ours, theirs = os.pipe()
    reporter = reporting.Reporter(f"/proc/self/fd/{theirs}", StepWatch(0))
    with mock.patch.object(reporting, "_reporter", reporter):
        reporting.send_error(error)
        reporting.close()
    os.close(theirs)
    with open(ours) as reports:
        found = [json.loads(line).get("error") for line in reports]
    return next(tuple(names) for names in found if names is not None)


@pytest.mark.parametrize(
    "error, is_final",
    [
        (NanLossDuringTrainingError, True),
        (errors.ConfigError, True),
        (SyntaxError, True),
        (ModuleNotFoundError, True),
        (type("OtherConfigError", (errors.ConfigError,), {}), True),
        (ConfigError, False),
        (errors.CheckpointError, False),
        (MissingVariablesError, True),
        (errors.PeerTimeoutError, False),
        (KeyError, False),
    ],
)
def test_an_error_that_would_repeat_is_not_tried_again(error, is_final):
    failure = Failure(status=1, error=_reported(error))
    expected = "not restarted, as a restart would end the same way"
    assert Budget(max_restarts=3).refusal(failure) == (expected if is_final else None)


@pytest.mark.parametrize(
    "error, is_of_program",
    [
        (tf.errors.AbortedError, False),
        (tf.errors.UnavailableError, False),
        (type("Lost", (tf.errors.UnavailableError,), {}), False),
        (errors.PeerTimeoutError, False),
        (AbortedError, True),
        (concurrent.futures.CancelledError, True),
        (tf.errors.InternalError, True),
        (KeyError, True),
    ],
)
def test_only_errors_of_tensorflow_and_of_this_package_are_of_a_peer(
    error, is_of_program
):
    assert Failure(status=1, error=_reported(error)).is_of_program == is_of_program


_KEY, _VALUE = ("builtins.KeyError",), ("builtins.ValueError",)
_UNAVAILABLE = ("tensorflow.python.framework.errors_impl.UnavailableError",)


@pytest.mark.parametrize(
    "first, second, refusal",
    [
        ((_KEY, 40), (_KEY, 40), "the same failure as the last time at step 40"),
        ((_KEY, 40), (_KEY, 90), None),
        ((_KEY, 40), (_VALUE, 40), None),
        ((("a.Error",), 40), (("b.Error",), 40), None),
        ((_UNAVAILABLE, 40), (_UNAVAILABLE, 40), None),
        (((), None), ((), None), "the same failure as the last time"),
    ],
)
def test_a_program_that_fails_twice_in_the_same_way_has_failed(first, second, refusal):
    budget = Budget(max_restarts=3)
    budget.spend(Failure(status=1, error=first[0], step=first[1]))
    failure = Failure(status=1, error=second[0], step=second[1])
    assert budget.refusal(failure) == refusal


def test_an_evaluator_that_fails_at_another_checkpoint_has_not_failed_twice():
    state = TaskState(Task(type="evaluator", index=0), Budget(max_restarts=3))
    refusals = []
    for step in (100, 200, 200):
        state.start(now=0.0)
        state.hear({"metrics": {"loss": 0.5, "global_step": float(step)}}, now=1.0)
        state.hear({"error": ["tensorflow.x.InternalError"]}, now=2.0)
        state.end(1)
        refusals.append(state.budget.refusal(state.failure))
        state.budget.spend(state.failure)
        state.restart(at=0.0)
    assert refusals == [None, None, "the same failure as the last time at step 200"]


def test_a_loss_that_is_nan_is_told_from_other_failures():
    own = type("NanLossDuringTrainingError", (RuntimeError,), {})
    classes = (NanLossDuringTrainingError, own, KeyError)
    told = [Failure(status=1, error=_reported(error)).is_nan for error in classes]
    assert told == [True, False, False]
