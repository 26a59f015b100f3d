"""TensorFlow's private names that this runtime uses are there, on each TensorFlow."""

import importlib

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.cli import explanation
from estimator_runtime.loop.hooks import schedule as hook_schedule
from estimator_runtime.tf_internals import sessions

estimator_runtime.install()


@pytest.mark.parametrize("name", hook_schedule._BY_CLASS)
def test_each_hook_that_is_known_by_its_name_is_there(name):
    module, _, cls = name.rpartition(".")
    found = getattr(importlib.import_module(module), cls)
    assert issubclass(found, tf.compat.v1.train.SessionRunHook)
    assert hook_schedule._name_of(found) == name


def test_our_own_hooks_are_scheduled_as_classes_that_are_known():
    from estimator_runtime.checkpoint.hook import CheckpointHook
    from estimator_runtime.session.hooks.step_rate import StepRateHook

    for cls in (CheckpointHook, StepRateHook):
        assert issubclass(cls, cls.scheduled_as)
        assert hook_schedule._name_of(cls.scheduled_as) in hook_schedule._BY_CLASS


def test_a_profiler_hook_is_made_in_eager_mode_and_writes_its_timelines(tmp_path):
    def model_fn(features, labels, mode):
        weight = tf.compat.v1.get_variable("weight", initializer=0.0)
        loss = tf.square(weight - features)
        step = tf.compat.v1.train.get_global_step()
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors(1.0).repeat()

    assert tf.executing_eagerly()
    profile = tmp_path / "profile"
    hook = tf.estimator.ProfilerHook(save_steps=3, output_dir=str(profile))
    estimator = tf.estimator.Estimator(model_fn, tmp_path / "model")
    estimator.train(input_fn, hooks=[hook], steps=7)
    # Of the steps 3 and 6, or a step sooner: it is chance whether TensorFlow's hook reads
    # the global step before it is increased.
    assert len(list(profile.glob("timeline-*.json"))) >= 2
    assert len(list(profile.glob("events.out.tfevents.*"))) == 1


class FailsInStep3(tf.estimator.SessionRunHook):
    """A hook whose third step ends with an error."""

    def __init__(self, error):
        self._error, self._steps = error, 0

    def before_run(self, run_context):
        self._steps += 1
        if self._steps == 3:
            raise self._error


@pytest.mark.parametrize(
    "kind, message, is_loss",
    [
        (tf.errors.UnavailableError, "recvmsg: reset by peer", True),
        (tf.errors.InternalError, "Collective ops is aborted by: gone", True),
        (tf.errors.InternalError, "of a kernel", False),
    ],
)
def test_a_session_that_may_not_recover_raises_the_error_that_lost_it(
    kind, message, is_loss
):
    train, seen, error = tf.compat.v1.train, [], kind(None, None, message)
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1)
        session = train.MonitoredSession(hooks=[FailsInStep3(error)])
        sessions.stop_recovering(session, seen.append)
        with pytest.raises(kind, match=message), session:
            while not session.should_stop():
                last = session.run(step)
    assert last == 2
    assert seen == [error] * is_loss


class FailingLayer(tf.keras.layers.Layer):
    def call(self, x):
        raise ValueError("the reason")


def test_autograph_and_keras_mark_the_errors_that_they_raise_again():
    layer = FailingLayer()
    rewritten = tf.autograph.to_graph(lambda: layer(tf.constant(1.0)))
    with (
        tf.Graph().as_default(),
        pytest.raises(ValueError, match="the reason") as raised,
    ):
        rewritten()
    of_keras = raised.value
    of_autograph = of_keras.__context__
    first = of_autograph.__context__
    assert hasattr(of_keras, explanation._IS_OF_KERAS)
    assert str(first) == "the reason"
    errors = (of_autograph, first)
    metadata, again = (getattr(each, explanation._METADATA) for each in errors)
    assert metadata is again
    line = FailingLayer.call.__code__.co_firstlineno + 1
    assert metadata.translated_stack[0][:3] == (__file__, line, "call")
