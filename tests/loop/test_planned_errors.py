"""Errors of hooks, ops and threads end a session, or renew it, as in TensorFlow.

Every test runs on TensorFlow's session too: what it asserts is TensorFlow's contract.
"""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.loop import planned

tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")


class Raising(train.SessionRunHook):
    """Raises `error` in the call number `at` of `method`, and only there."""

    def __init__(self, method, at, error):
        self.error = error
        self.left = {method: at}
        self.sessions = []
        self.ended = 0

    def after_create_session(self, session, coord):
        self.sessions.append(session)
        self.count("after_create_session")

    def before_run(self, run_context):
        self.count("before_run")

    def after_run(self, run_context, run_values):
        self.count("after_run")

    def end(self, session):
        self.ended += 1

    def count(self, method):
        self.left[method] = self.left.get(method, 0) - 1
        if self.left[method] == 0:
            raise self.error


def counter():
    return train.get_or_create_global_step().assign_add(1)


def error_of(session, fetches):
    with pytest.raises(tf.errors.OpError) as caught:
        session.run(fetches)
    return caught.value


def test_an_op_that_fails_is_named_by_the_error(monitored):
    zero = tf1.get_variable("zero", initializer=0.0)
    tf.debugging.check_numerics(1 / zero, "not a number", name="check")
    with monitored() as session:
        for fetches in ("check:0", ["check:0"], "check:0"):
            error = error_of(session, fetches)
            assert type(error) is tf.errors.InvalidArgumentError
            assert error.op is tf1.get_default_graph().get_operation_by_name("check")
            assert error.node_def == error.op.node_def
            assert "not a number : Tensor had Inf values" in error.message
            assert "{{node check}}" in error.message
            assert "test_planned_errors.py" in error.message  # where it was made


def test_an_op_whose_kernel_cannot_be_made_is_named_by_the_error(monitored):
    image = tf1.placeholder_with_default(np.zeros([1, 1, 1], np.uint8), [1, 1, 1])
    encoded = tf.raw_ops.EncodePng(image=image, compression=10, name="encoded")
    with monitored() as session:
        for _ in range(2):
            error = error_of(session, encoded)
            assert type(error) is tf.errors.InvalidArgumentError
            assert error.op is encoded.op
            assert "compression should be in [-1,9], got 10" in error.message
            assert "test_planned_errors.py" in error.message  # where it was made


def test_a_session_goes_on_after_an_error_that_the_program_catches(monitored):
    divisor = tf1.placeholder_with_default(0.0, [])
    quotient = tf.debugging.check_numerics(1 / divisor, "not a number")
    add = counter()
    error = ValueError("of a hook")
    hook = Raising("after_run", 2, error)
    with monitored(hooks=[hook]) as session:
        assert session.run(add) == 1
        error_of(session, quotient)
        with pytest.raises(ValueError, match="of a hook"):
            session.run(add)
        assert session.run([add, quotient], {divisor: 4.0}) == [3, 0.25]
        assert session.run(add) == 4
        assert not session.should_stop()
    assert (hook.ended, len(hook.sessions)) == (1, 1)


PREEMPTIONS = [
    tf.errors.AbortedError(None, None, "aborted"),
    tf.errors.UnavailableError(None, None, "unavailable"),
]


def test_a_preempted_session_is_restored_from_its_checkpoint(monitored, tmp_path):
    add = counter()
    scaffold = train.Scaffold()
    hooks = [
        Raising("before_run", 3, PREEMPTIONS[0]),
        train.CheckpointSaverHook(str(tmp_path), save_steps=1, scaffold=scaffold),
    ]
    creator = train.ChiefSessionCreator(scaffold, checkpoint_dir=str(tmp_path))
    with monitored(creator, hooks) as session:
        assert [session.run(add) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert len(hooks[0].sessions) == 2


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("Session handle is not found: 1", tf.errors.AbortedError),
        ("The same RunGraph request was received twice", tf.errors.AbortedError),
        ("RunManyGraphs", tf.errors.CancelledError),
    ],
)
def test_only_a_cancelled_step_that_needs_a_new_session_gets_one(message, error):
    with pytest.raises(error), planned._naming_lost_sessions():
        raise tf.errors.CancelledError(None, None, f"Recv is cancelled. {message}")
