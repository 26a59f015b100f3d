"""Random numbers are stock's as long as nothing but the step runs the step's ops."""

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options

tf1 = tf.compat.v1
train = tf1.train
START = "steps_per_run=7: steps are run one by one, because the step "
DRAWS = (
    f"{START}draws random numbers, 'drop/random_uniform/RandomUniform', whose generator "
    "the loop would start again"
)
TURNS = f"{START}takes turns with other calls of the session"


def said(caplog):
    logger = "estimator_runtime.loop.run_length"
    return [r.getMessage() for r in caplog.records if r.name == logger]


def build():
    """Build a model with dropout; give its loss, train op and weights."""
    tf1.set_random_seed(3)
    weights = tf1.get_variable("weights", [8], initializer=tf1.ones_initializer())
    kept = tf.nn.dropout(weights, rate=0.5, name="drop")
    loss = tf.reduce_sum(tf.square(kept), name="loss")
    step = train.get_or_create_global_step()
    train_op = train.GradientDescentOptimizer(0.01).minimize(loss, step)
    return loss, train_op, weights


@pytest.mark.parametrize("steps_per_run", [1, 7])
def test_a_second_request_that_draws_nothing_changes_no_losses(steps_per_run, caplog):
    def losses(make_session):
        with tf.Graph().as_default():
            loss, train_op, weights = build()
            total = tf.reduce_sum(weights)
            with make_session() as session:
                seen = [session.run([train_op, loss])[1]]
                for _ in range(9):
                    session.run(total)
                    seen.append(session.run([train_op, loss])[1])
                return [float(each) for each in seen]

    stock = losses(monitored_session.MonitoredTrainingSession)
    with options.use(options.TrainingOptions(steps_per_run=steps_per_run)):
        assert losses(er.MonitoredTrainingSession) == stock
    assert said(caplog) == ([TURNS] if steps_per_run == 7 else [])


def final_ops(name, steps_per_run=None):
    """Return the final ops' value of a training of 20 steps."""
    with tf.Graph().as_default():
        loss, train_op, weights = build()
        final = train.FinalOpsHook({"loss": loss, "weights": weights[0]}[name])
        hooks = [final, train.StopAtStepHook(last_step=20)]
        make = monitored_session.MonitoredTrainingSession
        if steps_per_run is not None:
            make = er.MonitoredTrainingSession
        chosen = options.TrainingOptions(steps_per_run=steps_per_run or 1)
        with options.use(chosen), make(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train_op)
        return float(final.final_ops_values)


def test_final_ops_go_on_with_the_random_numbers_of_the_steps(caplog):
    assert final_ops("loss", 7) == final_ops("loss")
    assert said(caplog) == [DRAWS]


def test_a_log_at_the_end_goes_on_with_the_random_numbers_of_the_steps(
    train_in_a_loop, caplog
):
    def model():
        loss, train_op, _ = build()
        return train_op, [
            train.LoggingTensorHook({"constant": tf.constant(1)}, 5, at_end=True),
            train.LoggingTensorHook({"drawn": loss}, 6, at_end=True),
            train.StopAtStepHook(last_step=20),
        ]

    # Without the steps' rate, which in stock says what luck lets it read of their count.
    stock, _ = train_in_a_loop(model, log_step_count_steps=None)
    assert train_in_a_loop(model, 7, log_step_count_steps=None)[0] == stock
    assert sum(line.startswith("drawn = ") for line in stock.log) == 5
    assert said(caplog) == [DRAWS]
