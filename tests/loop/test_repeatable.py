"""Two runs with the same seed are equal, wherever TensorFlow keeps random generators."""

import random

import pytest
import tensorflow as tf

from estimator_runtime.loop.session import LoopSession

tf1 = tf.compat.v1
train = tf1.train


def dropped(x):
    return tf.nn.dropout(x, 0.5)


def shuffled(x):
    return tf.random.shuffle(x) + x


def noisy(x):
    return x + 0.1 * tf.random.normal([8])


function = tf.function(autograph=False)  # several times as fast to trace


def in_a_function(draw):
    return function(lambda x: draw(x) + 1)


def in_a_branch(draw):
    return lambda x: tf.cond(x[0] < 1e9, lambda: draw(x), lambda: x)


def in_a_loop(draw):
    def looped(x):
        def body(i, x):
            return i + 1, tf.ensure_shape(draw(x), [8]) * 0.7

        # With more, chance decides which iteration draws first.
        return tf.while_loop(lambda i, _: i < 2, body, [0, x], parallel_iterations=1)[1]

    return looped


def in_a_method(draw):
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.draw = in_a_function(draw)

        @function
        def __call__(self, x):
            return self.draw(x) * 0.9

    return Model()


NO_GRAPPLER = tf1.ConfigProto()
NO_GRAPPLER.graph_options.rewrite_options.disable_meta_optimizer = True
NO_INLINING = tf1.ConfigProto()
NO_INLINING.graph_options.rewrite_options.function_optimization = 2  # OFF


def runs_of(program, config, steps, makers):
    """Return the bits of the variables after a training with a seed, for each session.

    Args:
        program: A function of a tensor.
        config: The ConfigProto of the sessions.
        steps: The steps of a training.
        makers: Functions that make a session, of a session creator and hooks.
    """
    found = []
    with tf.Graph().as_default():
        tf1.set_random_seed(3)
        weights = tf1.get_variable("weights", [8], initializer=tf1.ones_initializer())
        loss = tf.reduce_sum(tf.square(tf.ensure_shape(program(weights), [8]) - 2))
        step = train.get_or_create_global_step()
        train_op = train.MomentumOptimizer(0.001, 0.9).minimize(loss, step)
        for make_session in makers:
            at_end = train.FinalOpsHook(tf1.global_variables())
            hooks = [train.StopAtStepHook(steps), at_end]
            creator = train.ChiefSessionCreator(config=config)
            with make_session(creator, hooks) as session:
                while not session.should_stop():
                    session.run([train_op, loss])
            found.append([each.tobytes() for each in at_end.final_ops_values])
    return found


def ours(steps_per_run):
    def make(creator, hooks):
        return LoopSession(creator, hooks, steps_per_run=steps_per_run)

    return make


DRAWS = (dropped, shuffled, noisy, tf.tanh)
PLACES = (in_a_function, in_a_branch, in_a_loop, in_a_method)


def random_program(number):
    """Return a program of random parts, each in functions, branches and loops."""
    chosen = random.Random(number)
    parts = []
    for _ in range(chosen.randint(1, 3)):
        part = chosen.choice(DRAWS)
        for _ in range(chosen.randint(0, 2)):
            part = chosen.choice(PLACES)(part)
        parts.append(part)

    def program(x):
        for part in parts:
            x = tf.ensure_shape(part(x), [8])
        return x

    return program, chosen.choice([None, None, NO_GRAPPLER, NO_INLINING])


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_two_runs_of_random_programs_with_a_seed_are_equal_to_stocks(first):
    for number in range(first, first + 20):
        program, config = random_program(number)
        makers = [train.MonitoredSession, *[ours(7 if number % 2 else 1)] * 2]
        stock, one, other = runs_of(program, config, 60, makers)
        assert (one, other) == (stock, stock), number
