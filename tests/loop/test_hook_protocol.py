"""What hooks may offer the step loop, and that those of this runtime offer it."""

import pytest
import tensorflow as tf

from estimator_runtime.checkpoint.hook import CheckpointHook
from estimator_runtime.loop.hooks.protocol import (
    BackgroundHook,
    DisowningCreator,
)
from estimator_runtime.loop.session import LoopSession
from estimator_runtime.session.hooks.progress import WatchedHook

tf1 = tf.compat.v1
train = tf1.train


class Works(train.SessionRunHook):
    """Counts how often its work is waited for."""

    finished = 0

    def finish_background_work(self):
        self.finished += 1


@pytest.mark.parametrize(
    ("cls", "protocol"),
    [
        (Works, BackgroundHook),
        (CheckpointHook, BackgroundHook),
        (WatchedHook, BackgroundHook),
    ],
)
def test_a_hook_offers_what_the_loop_asks_for(cls, protocol):
    assert issubclass(cls, protocol)
    assert not issubclass(train.SessionRunHook, protocol)


def test_background_work_is_waited_for_when_a_session_closes_even_by_an_error():
    hook = Works()
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1)
        with pytest.raises(KeyError), LoopSession(hooks=[hook]) as session:
            session.run(step)
            assert hook.finished == 1  # before the session was created
            raise KeyError
    assert hook.finished == 2


def test_values_are_disowned_if_the_loss_is_nan():
    class Creator(train.ChiefSessionCreator):
        disowned = 0

        def disown_values(self):
            self.disowned += 1

    with tf.Graph().as_default():
        train.get_or_create_global_step()
        loss = tf.constant(float("nan"))
        creator = Creator()
        assert isinstance(creator, DisowningCreator)
        with (
            pytest.raises(train.NanLossDuringTrainingError),
            LoopSession(creator, [train.NanTensorHook(loss)]) as session,
        ):
            session.run(loss)
    assert creator.disowned == 1
