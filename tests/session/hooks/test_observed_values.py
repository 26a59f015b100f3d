"""What is known of a training by the hooks that the program has given it."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.session.hooks.progress import OtherHooks

train = tf.compat.v1.train


class Stopping(train.StopAtStepHook):
    """Made without TensorFlow's constructor."""

    def __init__(self):
        pass


@pytest.mark.parametrize(
    "steps, last",
    [
        ([], None),
        ([50], 50),
        ([50, 40], 40),
        ([62.5], 63),
        ([np.float32(60)], 60),
        ([10**400], 10**400),
        ([float("inf")], None),
        ([float("nan")], None),
        ([float("inf"), 40], 40),
    ],
)
def test_the_last_step_is_the_first_at_which_a_hook_stops(steps, last):
    hooks = [train.StopAtStepHook(last_step=step) for step in steps]
    found = OtherHooks([train.SessionRunHook(), Stopping(), *hooks]).last_step
    assert (found, type(found)) == (last, type(last))
