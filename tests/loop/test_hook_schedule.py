"""When each kind of hook next has to see a step."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.loop.hooks import schedule as hook_schedule
from estimator_runtime.loop.hooks.idle import IdleHooks

er.install()

from tensorflow_estimator.python.estimator import early_stopping  # noqa: E402

train = tf.compat.v1.train


@pytest.fixture(autouse=True)
def graph():
    """A graph with a global step, which hooks want at their beginning."""
    with tf.Graph().as_default() as graph:
        train.get_or_create_global_step()
        yield graph


def begun(hook, last=None, **attributes):
    """Return a hook that has begun, and acted last when its timer had the count `last`."""
    hook.begin()
    if last is not None:
        hook._timer.update_last_triggered_step(last)
    for name, value in attributes.items():
        assert hasattr(hook, name)
        setattr(hook, name, value)
    return hook


class Silent(train.SessionRunHook):
    def after_run(self, run_context, run_values):
        pass


@pytest.mark.parametrize(
    ("hook", "trained", "due"),
    [
        (lambda: Silent(), 0, 1),
        (lambda: train.FeedFnHook(dict), 7, 1),
        (lambda: train.FinalOpsHook(None), 7, None),
        (lambda: train.StopAtStepHook(last_step=20), 0, 20),
        (lambda: train.StopAtStepHook(last_step=20), 19, 1),
        (lambda: train.NanTensorHook("loss"), 7, None),  # the loop watches it
        (lambda: begun(train.StepCounterHook(10)), 0, 1),
        (lambda: begun(train.StepCounterHook(10), last=1), 1, 10),
        (lambda: begun(train.StepCounterHook(None, 60), last=1), 10, None),
        (lambda: begun(train.LoggingTensorHook([], 10)), 0, 1),
        (lambda: begun(train.LoggingTensorHook([], 10), last=0, _iter_count=1), 1, 10),
        (lambda: begun(train.LoggingTensorHook([], None, 60), last=0), 1, None),
        (lambda: begun(train.LoggingTensorHook([], at_end=True)), 1, None),
        (lambda: begun(train.SummarySaverHook(10, summary_op="s")), 0, 1),
        (
            lambda: begun(
                train.SummarySaverHook(10, summary_op="s"), last=1, _next_step=2
            ),
            1,
            10,
        ),
        (lambda: early_stopping._StopOnPredicateHook(bool, None, 10), 0, 1),
        (lambda: early_stopping._CheckForStoppingHook(), 0, 1),
    ],
)
def test_a_hook_is_due_when_it_acts_next(hook, trained, due):
    assert hook_schedule.until_due([hook()], trained) == due


def obstacle(hooks):
    """Return the reason why hooks have to see every step, or None."""
    return IdleHooks(hooks).obstacle


class SavesMore(train.CheckpointSaverHook):
    def end(self, session):
        super().end(session)


class LooksAtAll(train.CheckpointSaverHook):
    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)


class AsksToo(train.StopAtStepHook):
    def before_run(self, run_context):
        return super().before_run(run_context)


def test_hooks_that_are_not_known_see_every_step():
    known = [train.StopAtStepHook(1), train.SessionRunHook()]
    assert obstacle(known) is None
    own = [Silent(), AsksToo(1), Silent(), train.FeedFnHook(dict)]
    assert obstacle([*known, *own]) == "must be seen by AsksToo, FeedFnHook, Silent"


def test_a_subclass_sees_every_step(tmp_path):
    saves_more, looks = (cls(str(tmp_path), 10) for cls in (SavesMore, LooksAtAll))
    assert obstacle([saves_more, looks]) == "must be seen by LooksAtAll, SavesMore"
    saves_more._timer = train.SecondOrStepTimer(every_steps=10)
    saves_more._timer.update_last_triggered_step(0)
    assert hook_schedule.until_due([saves_more], 3) == 7


def test_methods_that_a_program_sets_on_a_hook_see_every_step():
    hook = train.StopAtStepHook(last_step=20)
    hook.after_run = lambda run_context, run_values: None
    assert hook_schedule.until_due([hook], 0) == 1
    assert obstacle([hook]) == "must be seen by StopAtStepHook"
