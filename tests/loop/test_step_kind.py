"""A session says in which way it has run a step, and the documentation says when."""

import pathlib

import pytest
import tensorflow as tf

from estimator_runtime.loop.session import LoopSession
from estimator_runtime.loop.step_kind import StepKind

tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how_a_step_runs.md"


def test_the_documentation_has_the_ways_in_the_order_in_which_one_is_chosen():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    ways = [line.split(" | ")[0].removeprefix("| ") for line in lines[1:]]
    assert ways == [kind.value for kind in StepKind]


def step_op():
    """Return an op that adds 1 to the global step, once hooks have read it."""
    step = train.get_or_create_global_step()
    with tf.control_dependencies([step._graph_element]):
        return step.assign_add(1, read_value=False)


def kinds(calls, hooks=(), **arguments):
    """Return the way in which each call of a session is run.

    Args:
        calls: Functions of the session and the train op.
        hooks: The hooks of the session.
        **arguments: Further arguments of the session.
    """
    step, found = step_op(), []
    with LoopSession(hooks=[train.StopAtStepHook(99), *hooks], **arguments) as session:
        for call in calls:
            call(session, step)
            found.append(session.step_kind)
    return found


def plain(session, step):
    session.run(step)


def traced(session, step):
    session.run(step, options=tf1.RunOptions(trace_level=3))


def fed(session, step):
    feed = session.graph.get_tensor_by_name("fed:0")
    session.run([step, feed], {feed: 1.0})


class Watching(train.SessionRunHook):
    """A hook of a program, which sees each step."""

    def after_run(self, run_context, run_values):
        pass


def test_no_hook_is_called_once_none_is_due():
    assert kinds([plain] * 4) == [StepKind.PLANNED] * 2 + [StepKind.IDLE] * 2


def test_a_hook_of_a_program_sees_each_step():
    assert kinds([plain] * 4, [Watching()]) == [StepKind.PLANNED] * 4


def test_a_call_with_feeds_or_run_options_is_stocks():
    tf1.placeholder_with_default(0.0, [], name="fed")
    assert kinds([fed, traced]) == [StepKind.STOCK] * 2


def test_several_steps_run_in_one_call():
    assert kinds([plain] * 4, steps_per_run=7) == [
        *([StepKind.PLANNED] * 2),
        *([StepKind.FUSED] * 2),
    ]


def test_after_a_call_for_something_else_each_call_is_one_step():
    def look(session, step):
        session.run(train.get_global_step())

    assert kinds([plain] * 3 + [look] + [plain] * 3, steps_per_run=7) == [
        *(StepKind.PLANNED, StepKind.PLANNED, StepKind.FUSED, StepKind.PLANNED),
        *(StepKind.PLANNED, StepKind.PLANNED, StepKind.IDLE),
    ]


@pytest.mark.parametrize(
    ("loop", "kind"), [("stock", StepKind.STOCK), ("plans", StepKind.PLANNED)]
)
def test_the_option_loop_rules_ways_out(loop, kind):
    found = kinds([plain] * 3, [Watching()], loop=loop, steps_per_run=7)
    assert found == [kind] * 3
