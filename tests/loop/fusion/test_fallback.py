"""What cannot be fused is trained step by step, and the log says why, once."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options

tf1 = tf.compat.v1
train = tf1.train


def said(caplog):
    """Return why steps were run one by one: the log lines, without what they share."""
    start = "steps_per_run=7: steps are run one by one, because the step "
    logger = "estimator_runtime.loop.run_length"
    lines = [r.getMessage() for r in caplog.records if r.name == logger]
    assert all(line.startswith(start) for line in lines), lines
    return [line.removeprefix(start) for line in lines]


def dense(features, name="weights", **arguments):
    return tf.matmul(features["x"], tf1.get_variable(name, [36, 1], **arguments))


def reference_variable(features):
    return dense(features, use_resource=False)


def through_py_function(features):
    return tf.reshape(tf.py_function(tf.tanh, [dense(features)], tf.float32), [-1, 1])


def half():
    scale = tf.numpy_function(lambda: np.float32(0.5), [], tf.float32)
    return tf.reshape(scale, [])


def python_in_a_function(features):
    return dense(features) * tf.function(half)()


def old_control_flow(features):
    tf1.disable_control_flow_v2()
    try:
        return new_control_flow(features)
    finally:
        tf1.enable_control_flow_v2()


def summary_of_a_reference_variable(features):
    old = tf1.get_variable("old", [], use_resource=False, trainable=False)
    tf1.summary.scalar("old", old * 2)
    return dense(features)


def new_control_flow(features):
    hidden = dense(features)
    hidden = tf.cond(
        tf.reduce_sum(features["x"]) > 0, lambda: tf.tanh(hidden), lambda: hidden
    )
    times = tf.math.floormod(features["words"][0, 0], 4)
    return tf.while_loop(
        lambda i, _: i < times,
        lambda i, x: (i + 1, tf.tanh(x) * 0.9),
        [tf.constant(0, times.dtype), hidden],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 1])],
    )[1]


def dropout(features):
    return tf.nn.dropout(dense(features), 0.2)


def recurrent(features):
    sequence = tf.reshape(features["x"], [-1, 6, 6])
    return tf.keras.layers.Dense(1)(tf.keras.layers.GRU(5)(sequence))


def graph_function(features):
    @tf.function
    def twice(x):
        return tf.nn.dropout(x, 0.5) * 2

    return twice(dense(features))


def random_generator(features):
    state = tf1.get_variable(
        "state", initializer=np.arange(3, dtype=np.int64), trainable=False
    )
    generator = tf.random.Generator.from_state(state, "philox")
    return dense(features) + generator.normal([8, 1])


def lookup_table(features):
    rows = tf.lookup.KeyValueTensorInitializer(["red", "green"], [0.5, -0.5])
    table = tf.lookup.StaticHashTable(rows, 0.0)
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, table._initialize())
    return dense(features) + tf.reshape(table.lookup(features["name"]), [-1, 1])


def map_of_sparse_tensors(features):
    """Keep sparse tensors in a map that bears the name of its op."""
    handles = tf.raw_ops.AddManySparseToTensorsMap(
        sparse_indices=[[0, 0]],
        sparse_values=features["x"][0, :1],
        sparse_shape=tf.constant([1, 1], tf.int64),
    )
    return dense(features) + tf.cast(handles, tf.float32)


def dense_table(features, empty_key=-1):
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.float32, 0.0, empty_key=empty_key, deleted_key=-2
    )
    words = tf.cast(tf.reshape(features["words"], [-1]), tf.int64)
    step = tf1.cast(train.get_global_step(), tf.int64)
    with tf.control_dependencies([table.insert(words * step, tf.ones([40]))]):
        return dense(features) * tf.cast(table.size(), tf.float32) / 40


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (reference_variable, "has a reference variable, "),
        (through_py_function, "calls Python, 'EagerPyFunc'"),
        (python_in_a_function, "calls Python, 'PyFunc"),
        (old_control_flow, "has control flow of TensorFlow 1, "),
        (dropout, "draws random numbers, "),
        (
            map_of_sparse_tensors,
            "has an op that may keep state of its own, 'AddManySparseToTensorsMap' (",
        ),
        (graph_function, "calls a function whose ops have state of their own"),
    ],
)
def test_a_step_that_cannot_be_fused_trains_the_same(model, reason, training, caplog):
    this = training.replace(model=model)
    outcome = this.ours(7)
    assert outcome == this.stock()
    assert outcome.error is None
    (told,) = said(caplog)
    assert told.startswith(reason)


@pytest.mark.parametrize(
    "model",
    [
        new_control_flow,
        summary_of_a_reference_variable,
        recurrent,
        random_generator,
        lookup_table,
        dense_table,
    ],
)
def test_a_step_that_can_be_fused_is(model, training, caplog):
    this = training.replace(model=model, optimizer="Adam")
    outcome = this.ours(7)
    assert outcome == this.stock()
    assert outcome.error is None
    assert said(caplog) == []


def test_a_watch_for_nan_on_what_cannot_be_nan_is_stocks(training, caplog):
    this = training.replace(
        hooks=lambda loss: [train.NanTensorHook(tf.cast(loss, tf.int32))]
    )
    assert this.ours(7) == this.stock()
    (told,) = said(caplog)
    assert told.startswith("cannot be in a loop: ")


def add_two(optimizer, loss, step):
    return tf.group(optimizer.minimize(loss), tf1.assign_add(step, 2))


def assign(optimizer, loss, step):
    with tf.control_dependencies([optimizer.minimize(loss)]):
        return tf1.assign(step, step + 1)


def leave_alone(optimizer, loss, step):
    return optimizer.minimize(loss)


@pytest.mark.parametrize("make_train_op", [add_two, assign, leave_alone])
def test_a_step_that_does_not_add_one_to_the_global_step(
    make_train_op, training, caplog
):
    this = training.replace(make_train_op=make_train_op, batches=9)
    ours, stock = this.ours(7), this.stock()
    # When the others read the global step is up to chance.
    assert (ours.variables, ours.log[-1]) == (stock.variables, stock.log[-1])
    assert ours.error is None
    assert said(caplog) == ["does not add 1 to the global step"]


def test_a_placeholder_that_nobody_feeds_is_stocks_error(training, caplog):
    def model(features):
        return dense(features) * tf1.placeholder(tf.float32, [], "forgotten")

    this = training.replace(model=model)
    outcome = this.ours(7)
    assert outcome == this.stock()
    assert outcome.error.startswith("InvalidArgumentError: ")
    assert said(caplog) == []  # no step has run


@pytest.mark.parametrize(
    ("make", "devices", "reasons"),
    [
        (tf.distribute.MirroredStrategy, ["/cpu:0"], ["is one of several replicas"]),
        (tf.distribute.OneDeviceStrategy, "/cpu:0", []),
    ],
)
def test_a_strategy_trains_the_same(make, devices, reasons, training, caplog):
    strategy = make(devices)
    this = training.replace(config={"train_distribute": strategy})
    ours, stock = this.ours(7), this.stock()
    assert (ours.error, ours.checkpoints) == (None, [0, 20])
    assert (ours.variables, ours.log[-1]) == (stock.variables, stock.log[-1])
    assert said(caplog) == reasons


def test_a_session_of_another_process(caplog):
    server = train.Server.create_local_server()
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1)
        hooks = [train.StopAtStepHook(9)]
        chosen = options.TrainingOptions(steps_per_run=7)
        with (
            options.use(chosen),
            er.MonitoredTrainingSession(server.target, hooks=hooks) as session,
        ):
            values = []
            while not session.should_stop():
                values.append(session.run(step))
    assert values == list(range(1, 10))
    assert said(caplog) == ["is not run by a session of this process"]


JIT = tf1.OptimizerOptions(global_jit_level=tf1.OptimizerOptions.ON_1)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            tf1.ConfigProto(operation_timeout_in_ms=60_000),
            "has a time limit of its own (operation_timeout_in_ms)",
        ),
        (
            tf1.ConfigProto(graph_options=tf1.GraphOptions(optimizer_options=JIT)),
            "is compiled by XLA (global_jit_level)",
        ),
    ],
)
def test_some_session_configs_are_those_of_single_steps(
    config, reason, training, caplog
):
    this = training.replace(config={"session_config": config})
    assert this.ours(7) == this.stock()
    assert said(caplog) == [reason]


def players():
    """Return the train ops of two players, made when asked for: they may take turns."""
    noise = tf.ones([8])
    first, second = (tf1.get_variable(name, [8]) for name in ("first", "second"))
    loss = tf.reduce_sum(tf.square(first - second) * noise)
    optimizer = train.AdamOptimizer(0.1)
    step = train.get_or_create_global_step()
    yield optimizer.minimize(loss, step, var_list=[first])
    yield optimizer.minimize(-loss, var_list=[second])


def take_turns(train_ops):
    first, second = train_ops
    return lambda session: (session.run(first), session.run(second))


def take_turns_in_a_function(train_ops):
    first, second = train_ops

    def turn(step_context):
        step_context.run_with_hooks(first)
        step_context.session.run(second)

    return lambda session: session.run_step_fn(turn)


def look_in_between(train_ops):
    first, look = next(train_ops), tf1.global_variables()[0] + 1
    return lambda session: (session.run(first), session.run(look))


def with_run_options(train_ops):
    first, traced = next(train_ops), tf1.RunOptions(trace_level=3)
    return lambda session: session.run(first, options=traced)


def ask_for_much(train_ops):
    fetches = [next(train_ops), tf.zeros([2000], name="much")]
    return lambda session: session.run(fetches)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (
            take_turns,
            "takes turns with other calls of the session",
        ),
        (take_turns_in_a_function, "is run by a function, through run_step_fn"),
        (look_in_between, "takes turns with other calls of the session"),
        (with_run_options, "is fed, or has run options, by the caller"),
        (ask_for_much, "is asked for 'much:0', which is not small"),
    ],
)
def test_a_loop_of_the_programs_own_keeps_its_steps(use, reason, caplog):
    def after_10_turns(make_session):
        with tf.Graph().as_default():
            tf1.set_random_seed(3)
            turn = use(players())
            values = tf1.global_variables()
            with make_session() as session:
                for _ in range(10):
                    turn(session)
                return [value.tolist() for value in session.run(values)]

    with options.use(options.TrainingOptions(steps_per_run=7)):
        ours = after_10_turns(er.MonitoredTrainingSession)
    assert ours == after_10_turns(monitored_session.MonitoredTrainingSession)
    assert ours[-1] != ours[0]
    assert said(caplog) == [reason]


def by_hand(variable, gradient):
    return variable.assign_sub(0.1 * gradient).op


def in_a_function(variable, gradient):
    return tf.function(lambda: variable.assign_sub(0.1 * gradient))()


@pytest.mark.parametrize("update", [by_hand, in_a_function])
def test_players_that_update_their_own_way_take_their_turns(update, caplog):
    def after_4_turns(make_session):
        with tf.Graph().as_default():
            tf1.set_random_seed(3)
            first, second = (tf1.get_variable(n, [8]) for n in ("first", "second"))
            gradients = tf.gradients(tf.reduce_sum(first * second), [first, second])
            with tf.control_dependencies([update(first, gradients[0])]):
                play = train.get_or_create_global_step().assign_add(1).op
            reply = update(second, -gradients[1])
            with make_session() as session:
                for _ in range(4):
                    for _ in range(5):  # before the other's first turn too
                        session.run(play)
                    session.run(reply)
                return [value.tolist() for value in session.run([first, second])]

    with options.use(options.TrainingOptions(steps_per_run=7)):
        ours = after_4_turns(er.MonitoredTrainingSession)
    assert ours == after_4_turns(monitored_session.MonitoredTrainingSession)
    (told,) = said(caplog)
    assert told.startswith("leaves out '")
    assert told.endswith("', which trains as well")


def clip_when_asked(optimizer, loss, step):
    """Beside the train op, make one that sets a variable as a whole."""
    (weights,) = tf1.trainable_variables()
    weights.assign(tf.clip_by_norm(weights, 1.0))
    return optimizer.minimize(loss, step)


def average_in_turns(optimizer, loss, step):
    """Beside the train op, make one that changes a variable that is not trained."""
    average = tf1.get_variable("average", [36, 1], trainable=False)
    average.assign_sub(0.1 * (average - tf1.trainable_variables()[0]))
    return optimizer.minimize(loss, step)


@pytest.mark.parametrize("make_train_op", [clip_when_asked, average_in_turns])
def test_ops_that_do_not_train_may_stay_outside_of_the_loop(
    make_train_op, training, caplog
):
    this = training.replace(make_train_op=make_train_op)
    assert this.ours(7) == this.stock()
    assert said(caplog) == []


def test_what_a_step_prints_and_summarizes_is_the_same(training, tmp_path, caplog):
    def printing(folder):
        folder.mkdir()

        def make_train_op(optimizer, loss, step):
            writer = tf.summary.create_file_writer(str(folder))
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, writer.init())
            with writer.as_default():
                every_third = tf.equal(step % 3, 0)
                with tf.summary.record_if(every_third):
                    written = tf.summary.scalar("loss", loss, step=step)
            output = f"file://{folder}/printed"
            printed = tf.print(step, loss, output_stream=output)
            with tf.control_dependencies([printed, written]):
                minimize = optimizer.minimize(loss, step)
            with tf.control_dependencies([minimize]):
                return writer.flush()

        return training.replace(make_train_op=make_train_op)

    ours, stock = tmp_path / "ours", tmp_path / "stock"
    assert printing(ours).ours(7) == printing(stock).stock()
    assert said(caplog) == []
    printed = (ours / "printed").read_text()
    assert printed == (stock / "printed").read_text()
    assert [line.split()[0] for line in printed.splitlines()] == [
        str(step) for step in range(20)
    ]
    events = {
        folder.name: [
            (event.step, [str(value) for value in event.summary.value])
            for path in folder.glob("events.*")
            for event in train.summary_iterator(str(path))
            if event.HasField("summary")
        ]
        for folder in (ours, stock)
    }
    assert events["ours"] == events["stock"]
    assert [step for step, _ in events["ours"]] == [0, 3, 6, 9, 12, 15, 18]


def test_an_input_queue_is_read_as_with_single_steps(tmp_path, caplog):
    def trained(steps_per_run):
        data = np.arange(92, dtype=np.float32)
        input_fn = tf1.estimator.inputs.numpy_input_fn(
            {"x": data[:, None] / 92}, data % 2, 8, num_epochs=3, shuffle=False
        )
        column = tf.feature_column.numeric_column("x")
        config = tf.estimator.RunConfig(
            tmp_path / str(steps_per_run), steps_per_run=steps_per_run
        )
        estimator = tf1.estimator.LinearClassifier([column], config=config)
        estimator.train(input_fn)
        return {
            name: estimator.get_variable_value(name).tolist()
            for name in estimator.get_variable_names()
        }

    fused = trained(7)
    assert fused == trained(1)
    assert fused["global_step"] == 35  # 3 times 92 rows, by 8
    assert said(caplog) == []


def test_a_keras_model_trains_the_same(training, tmp_path, caplog):
    def trained(steps_per_run):
        layers = tf.keras.layers
        weights = tf.keras.initializers.GlorotUniform(seed=1)
        inputs = layers.Input([36], name="x")
        hidden = layers.Dense(8, "relu", kernel_initializer=weights)(inputs)
        hidden = layers.BatchNormalization()(hidden)
        outputs = layers.Dense(1, "sigmoid", kernel_initializer=weights)(hidden)
        model = tf.keras.Model(inputs, outputs)
        model.compile(tf.keras.optimizers.legacy.Adam(0.01), "mse")
        config = tf.estimator.RunConfig(
            tmp_path / str(steps_per_run), 5, steps_per_run=steps_per_run
        )
        estimator = tf.keras.estimator.model_to_estimator(model, config=config)
        estimator.train(training._input_fn, steps=20)
        return {
            name: estimator.get_variable_value(name).tolist()
            for name in estimator.get_variable_names()
            if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
        }

    fused = trained(7)
    assert fused == trained(1)
    assert fused["estimator_global_step/.ATTRIBUTES/VARIABLE_VALUE"] == 20
    assert said(caplog) == []


def test_a_read_of_a_variable_in_no_order_with_its_change(training, caplog):
    def count_fifths(optimizer, loss, step):
        zero = tf1.zeros_initializer()
        count = tf1.get_variable("fifths", [], tf.int64, zero, trainable=False)
        is_fifth = tf.equal(step.read_value() % 5, 0)
        counted = count.assign_add(tf.cast(is_fifth, tf.int64))
        return tf.group(optimizer.minimize(loss, step), counted)

    this = training.replace(make_train_op=count_fifths)
    ours, stock = this.ours(7), this.stock()
    assert (ours.error, sorted(ours.variables)) == (None, sorted(stock.variables))
    for outcome in (ours, stock):
        outcome.variables.pop("fifths")  # in stock, chance decides what is read
    assert ours == stock
    (told,) = said(caplog)
    assert told.startswith("sets no order between 'Read")
    assert told.endswith("' and a change of the same resource")
