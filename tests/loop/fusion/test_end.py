"""What ends a training inside a run of steps ends it where stock's single steps end."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options
from estimator_runtime.loop.fusion import idle_runs

tf1 = tf.compat.v1
train = tf1.train
LOGS = {"log_step_count_steps": 3, "save_summary_steps": 4}


def group_ops(optimizer, loss, step):
    """Make a train op that counts a step without waiting for its data."""
    return tf.group(optimizer.minimize(loss), tf1.assign_add(step, 1))


@pytest.mark.parametrize("batches", [1, 4, 6, 8])
def test_the_data_ends_at_any_offset_inside_a_run(batches, training, caplog):
    this = training.replace(model="embedding", batches=batches, train={"steps": None})
    outcome = this.ours(5)
    assert outcome == this.stock()
    assert outcome.error is None
    assert outcome.checkpoints == [0, batches]
    assert outcome.log[-1].startswith("Loss for final step: ")
    assert "nothing was trained" not in caplog.text


@pytest.mark.parametrize("batches", [4, 6])
def test_the_data_ends_between_hooks_that_act(batches, training):
    this = training.replace(
        batches=batches,
        train={"steps": None},
        config={"save_checkpoints_steps": 3, **LOGS},
        hooks=lambda loss: [train.LoggingTensorHook([loss], 2, at_end=False)],
    )
    assert this.ours(5) == this.stock()


@pytest.mark.parametrize("steps", [12.5, 13.0])
@pytest.mark.parametrize("steps_per_run", [5, "auto"])
def test_a_number_of_steps_may_be_a_fraction(
    steps, steps_per_run, training, monkeypatch
):
    # As in `steps=len(data) / batch_size`.
    monkeypatch.setattr(idle_runs, "TRIAL_STEPS", 1)
    monkeypatch.setattr(idle_runs, "FEWEST_STEPS", 1)
    monkeypatch.setattr(idle_runs, "STEPS_PER_OP", 0)
    this = training.replace(train={"steps": steps})
    outcome = this.ours(steps_per_run)
    assert outcome == this.stock()
    assert outcome.checkpoints == [0, 13]


def test_data_that_ends_with_the_last_step_ends_nothing(training):
    this = training.replace(batches=11, train={"steps": 11})
    assert this.ours(5) == this.stock()


def test_no_data_at_all_trains_nothing_and_a_warning_says_so(training, caplog):
    this = training.replace(batches=0, train={"steps": None})
    outcome = this.ours(5)
    assert outcome == this.stock()
    assert outcome.checkpoints == [0]
    assert [each.message for each in caplog.records if "input" in each.message] == [
        "the input ended before a step was completed; check that it finds its files, "
        "and that no filter or drop_remainder removes every row"
    ]


@pytest.mark.parametrize("batches", [0, 8])
def test_a_step_that_is_counted_without_its_data_ends_the_training_too(
    batches, training
):
    # Whether the last, failing, step is counted is up to chance, as in stock.
    this = training.replace(
        batches=batches, train={"steps": None}, make_train_op=group_ops
    )
    outcome, stock = this.ours(5), this.stock()
    assert outcome.error is None
    assert outcome.checkpoints[-1] in (batches, batches + 1)
    assert outcome.variables["weights"] == stock.variables["weights"]
    assert outcome.log[-1] == stock.log[-1]


@pytest.mark.parametrize("batches", [1, 6, 10])
def test_a_step_that_counts_itself_and_then_lacks_data_has_no_result(batches):
    def losses(make_session):
        with tf.Graph().as_default():
            with tf.control_dependencies([train.get_or_create_global_step()]):
                counted = train.get_global_step().assign_add(1)
            numbers = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(batches))
            with tf.control_dependencies([counted]):
                loss = tf.cast(numbers.get_next(), tf.float32)
            seen = []
            with make_session() as session:
                while not session.should_stop():
                    seen.append(float(session.run([counted, loss])[1]))
            return seen

    stock = losses(monitored_session.MonitoredTrainingSession)
    assert stock == [*range(batches)]
    with options.use(options.TrainingOptions(steps_per_run=5)):
        ours = losses(er.MonitoredTrainingSession)
    # Of the first two steps, then of each fifth, and of the last that has its data.
    assert ours == sorted({0, *range(1, batches, 5), batches - 1})


def start_in_a_call(session, data):
    session.run(data.initializer)


def start_in_a_function(session, data):
    session.run_step_fn(lambda step_context: step_context.session.run(data.initializer))


@pytest.mark.parametrize("start", [start_in_a_call, start_in_a_function])
@pytest.mark.parametrize("steps_per_run", [3, 100])
def test_a_program_that_starts_its_data_again_at_their_end_meets_no_end(
    steps_per_run, start
):
    def steps(make_session):
        with tf.Graph().as_default():
            data = tf1.data.make_initializable_iterator(tf.data.Dataset.range(10))
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, data.initializer)
            with tf.control_dependencies([data.get_next()]):
                step = train.get_or_create_global_step().assign_add(1)
            hooks = [train.StopAtStepHook(last_step=35)]
            seen = []
            with make_session(hooks=hooks) as session:
                while not session.should_stop():
                    seen.append(session.run(step))
                    if seen[-1] % 10 == 0:
                        start(session, data)
            return seen

    assert steps(monitored_session.MonitoredTrainingSession) == [*range(1, 36)]
    with options.use(options.TrainingOptions(steps_per_run=steps_per_run)):
        ours = steps(er.MonitoredTrainingSession)
    # Several steps in a call until another call is made, after the first ten.
    assert ours == sorted({1, *range(2, 11, steps_per_run), *range(10, 36)})


def becomes_nan(features):
    """A linear model that gives NaN from its 13th step on."""
    step = tf.cast(train.get_global_step(), tf.float32)
    weights = tf1.get_variable("weights", [36, 1])
    return tf.matmul(features["x"], weights) + tf.where(step >= 12, float("nan"), 0.0)


@pytest.mark.parametrize("save_steps", [4, 13])
def test_a_nan_is_an_error_at_stocks_step(save_steps, training):
    this = training.replace(
        model=becomes_nan, config={"save_checkpoints_steps": save_steps, **LOGS}
    )
    outcome = this.stock()
    assert [this.ours(5), this.ours(100)] == [outcome, outcome]
    assert outcome.error == "NanLossDuringTrainingError: NaN loss during training."
    assert outcome.log[-1] == "Model diverged with loss = NaN."


@pytest.mark.parametrize("every", [4, 13])
def test_a_nan_that_is_tolerated_stops_at_stocks_step(every, training, train_in_a_loop):
    def build():
        step = train.get_or_create_global_step()
        features, labels = training._input_fn()
        loss = tf.reduce_mean(tf.square(becomes_nan(features) - labels))
        weight = tf1.trainable_variables()[0][0, 0]
        tf1.summary.scalar("loss", loss)
        hooks = [
            train.NanTensorHook(loss, fail_on_nan_loss=False),
            train.LoggingTensorHook({"loss": loss, "weight": weight}, every),
        ]
        return [train.AdamOptimizer(0.1).minimize(loss, step), loss], hooks

    intervals = {"save_summaries_steps": every, "save_checkpoint_steps": 9}
    stock, _ = train_in_a_loop(build, **intervals)
    for steps_per_run in (5, 100):
        ours, (_, loss) = train_in_a_loop(build, steps_per_run, **intervals)
        assert ours == stock
        assert np.isnan(loss)
    assert stock.checkpoints == [0, 9, 13]


@pytest.mark.parametrize(
    ("watched", "seen"),
    [
        (lambda loss: [loss], 3),  # the first two steps, and the one with the NaN
        (lambda loss: [loss.name], 13),  # each one
        (lambda loss: [tf.sqrt(loss, "root"), 2 * loss], 3),
    ],
    ids=["a tensor", "its name", "two tensors"],
)
def test_a_nan_that_only_hooks_fetch_ends_a_run_of_steps_at_stocks_step(
    watched, seen, training, train_in_a_loop, seen_steps
):
    def build():
        step = train.get_or_create_global_step()
        features, labels = training._input_fn()
        loss = tf.reduce_mean(tf.square(becomes_nan(features) - labels))
        hooks = [train.NanTensorHook(each, False) for each in watched(loss)]
        return train.AdamOptimizer(0.1).minimize(loss, step), hooks

    stock, _ = train_in_a_loop(build)
    assert (stock.error, stock.checkpoints) == (None, [0, 13])
    seen_steps.clear()
    assert train_in_a_loop(build, 5) == (stock, None)
    assert len(seen_steps) == seen


def bad_record(data):
    """Make the ninth batch fail."""

    def check(number, batch):
        with tf.control_dependencies([tf1.assert_less(number, tf.int64.max // 2)]):
            return tf.nest.map_structure(tf.identity, batch)

    numbers = tf.data.Dataset.range(8).concatenate(
        tf.data.Dataset.from_tensors(tf.int64.max).repeat()
    )
    return tf.data.Dataset.zip((numbers, data)).map(check)


@pytest.mark.parametrize("save_steps", [3, 40])
def test_an_error_inside_a_run_is_raised_where_stock_raises_it(save_steps, training):
    this = training.replace(
        change_data=bad_record, config={"save_checkpoints_steps": save_steps, **LOGS}
    )
    outcome = this.ours(5)
    assert outcome == this.stock()
    assert outcome.error.startswith("InvalidArgumentError: ")
    assert outcome.checkpoints == [0, *range(save_steps, 9, save_steps)]


def test_a_program_goes_on_after_an_error_as_with_single_steps():
    def logged(make_session):
        def check(number):
            is_good = tf1.assert_none_equal(number % 10, tf.constant(9, tf.int64))
            with tf.control_dependencies([is_good]):
                return tf.cast(number, tf.float32)

        log = []
        with tf.Graph().as_default():
            data = tf.data.Dataset.range(44).map(check)
            loss = tf1.data.make_one_shot_iterator(data).get_next()
            with tf.control_dependencies([loss]):
                step = train.get_or_create_global_step().assign_add(1)
            hook = train.LoggingTensorHook(
                {"loss": loss}, 6, formatter=lambda values: log.append(values) or ""
            )
            with make_session(hooks=[hook]) as session:
                while True:
                    try:
                        session.run([step, loss])
                    except tf.errors.InvalidArgumentError:
                        log.append("bad record")
                    except tf.errors.OutOfRangeError:
                        return log

    stock = logged(monitored_session.MonitoredTrainingSession)
    with options.use(options.TrainingOptions(steps_per_run=4)):
        assert logged(er.MonitoredTrainingSession) == stock
    assert stock == [
        *({"loss": 0}, {"loss": 6}, "bad record"),
        *({"loss": 13}, "bad record"),
        *({"loss": 20}, {"loss": 26}, "bad record"),
        *({"loss": 33}, "bad record", {"loss": 40}),
    ]
