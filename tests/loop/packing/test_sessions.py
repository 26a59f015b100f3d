"""Trainings on parameter servers are equal to the bit with and without packing."""

import dataclasses
import json
import logging

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.config import options
from estimator_runtime.output.training_log import TRAINING_LOG

tf1 = tf.compat.v1
train = tf1.train
WORKER = "/job:worker/task:0"
ROWS, BATCH = 40, 16  # the last batch of each epoch has 8 rows


@dataclasses.dataclass
class Outcome:
    """What a training left."""

    variables: dict
    results: list
    fetched: list
    log: list


class Fetching(train.SessionRunHook):
    """A hook of a program that fetches parts of the step, at some steps."""

    def __init__(self, wanted, every=1):
        self.wanted, self.every, self.step, self.fetched = wanted, every, 0, []

    def before_run(self, run_context):
        self.step += 1
        if self.step % self.every == 0:
            return train.SessionRunArgs(self.wanted)
        return None

    def after_run(self, run_context, run_values):
        if run_values.results is not None:
            self.fetched.append(run_values.results)


def batches(cluster):
    draw = np.random.RandomState(0)
    data = {
        "x": draw.rand(ROWS, 4).astype("f"),
        **{f"c{i}": draw.randint(0, 9, ROWS) for i in range(3)},
        "y": draw.randint(0, 2, ROWS).astype("f"),
    }
    with tf1.device(cluster.worker):
        dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH).repeat()
        iterator = tf1.data.make_initializable_iterator(dataset)
        tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        return iterator.get_next()


def variable(name, shape, **kwargs):
    return tf1.get_variable(name, shape, use_resource=True, **kwargs)


def dense(net, width, name):
    kernel = variable(f"{name}_kernel", [net.shape[-1], width])
    return tf.matmul(net, kernel) + variable(f"{name}_bias", [width])


def loss_of(net, labels):
    logits = dense(net, 1, "logits")[:, 0]
    return tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def network(features):
    net = tf.nn.relu(dense(features["x"], 8, "first"))
    return loss_of(tf.nn.relu(dense(net, 8, "second")), features["y"])


def embeddings(features):
    rows = [
        tf.nn.embedding_lookup(variable(f"table_{i}", [9, 2]), features[f"c{i}"])
        for i in range(3)
    ]
    return loss_of(tf.concat([features["x"], *rows], 1), features["y"])


def same_ids(features):
    """TensorFlow sums in another order what it cannot tell to have equal shapes."""

    def total(shape, change):
        rows = [
            tf.nn.embedding_lookup(
                variable(f"{change.__name__}_{len(shape)}_{i}", [9, *shape]),
                features["c0"],
            )
            for i in range(6)
        ]
        terms = [change(each) for each in rows]
        return (terms[0] + terms[1]) + ((terms[2] + terms[3]) + (terms[4] + terms[5]))

    columns = [features["x"], total([3], tf.tanh), total([3], tf.identity)]
    return loss_of(tf.concat([*columns, total([], tf.tanh)[:, None]], 1), features["y"])


def partitioned(features):
    split = tf1.fixed_size_partitioner(2)
    table = variable("table", [9, 4], partitioner=split)
    kernel = variable("kernel", [8, 8], partitioner=split)
    rows = tf.nn.embedding_lookup(table, features["c0"])
    net = tf.matmul(tf.concat([features["x"], rows], 1), tf.convert_to_tensor(kernel))
    return loss_of(net, features["y"])


def dropout(features):
    """The seed of the graph seeds its random op."""
    net = tf.nn.relu(dense(features["x"], 8, "first"))
    net = tf.nn.dropout(net, rate=0.4)
    return loss_of(tf.nn.relu(dense(net, 8, "second")), features["y"])


def in_python(features):
    """Python keeps how often it was called, in order."""
    calls = []

    def scaled(x):
        calls.append(len(calls))
        return np.float32(x + len(calls))

    loss = network(features)
    with tf1.device(WORKER):
        factor = tf1.py_func(scaled, [loss], tf.float32)
    return loss * tf.stop_gradient(factor)


def in_a_loop(features):
    """A loop takes weights that cross."""
    kernel = variable("repeated", [4, 4])
    net = tf.while_loop(
        lambda i, net: i < 3,
        lambda i, net: (i + 1, tf.tanh(tf.matmul(net, kernel))),
        [0, features["x"]],
    )[1]
    return loss_of(tf.nn.relu(dense(net, 8, "first")), features["y"])


def clipped(optimizer, loss, step):
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
    tf1.add_to_collection("norm", norm)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True), step)


def minimized(optimizer, loss, step):
    return optimizer.minimize(loss, step)


def run(
    cluster,
    model,
    *,
    pack,
    optimizer=lambda: train.AdamOptimizer(0.1),
    train_op=minimized,
    ps_tasks=1,
    steps=12,
    hooks=lambda loss: [],
    call=lambda session, train_op, loss: session.run([train_op, loss]),
    checkpoint_dir=None,
):
    """Train a model, and return the outcome."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    TRAINING_LOG.addHandler(handler)
    level = TRAINING_LOG.level
    TRAINING_LOG.setLevel(logging.INFO)
    chosen = options.TrainingOptions(pack_transfers=pack)
    results = []
    try:
        with tf.Graph().as_default(), options.use(chosen):
            tf1.set_random_seed(5)
            with cluster.devices(ps_tasks):
                step = train.get_or_create_global_step()
                loss = model(batches(cluster))
                op = train_op(optimizer(), loss, step)
                tf1.summary.scalar("loss", loss)
                added = hooks(loss)
            variables = tf1.global_variables() + tf1.local_variables()
            with er.MonitoredTrainingSession(
                cluster.master,
                hooks=added,
                checkpoint_dir=checkpoint_dir,
                save_checkpoint_steps=5,
                save_summaries_steps=3,
            ) as session:
                for _ in range(steps):
                    results.append(call(session, op, loss))
                values = session.run_step_fn(
                    lambda step_context: step_context.session.run(variables)
                )
    finally:
        TRAINING_LOG.removeHandler(handler)
        TRAINING_LOG.setLevel(level)
    return Outcome(
        variables={v.name: x for v, x in zip(variables, values, strict=True)},
        results=results,
        fetched=[each.fetched for each in added if isinstance(each, Fetching)],
        log=[line for line in lines if line.startswith("pack_transfers")],
    )


def assert_equal(packed, plain):
    assert plain.log == []
    for name in ("variables", "results", "fetched"):
        ours, stock = (tf.nest.flatten(getattr(o, name)) for o in (packed, plain))
        assert len(ours) == len(stock) > 0 or name == "fetched"
        for mine, other in zip(ours, stock, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: train.GradientDescentOptimizer(0.1),
        lambda: train.AdamOptimizer(0.1),
        lambda: train.FtrlOptimizer(0.1),
    ],
    ids=["SGD", "Adam", "FTRL"],
)
@pytest.mark.parametrize("model", [network, embeddings])
def test_variables_are_equal_to_the_bit(cluster, model, optimizer):
    packed = run(cluster, model, pack=True, optimizer=optimizer)
    assert_equal(packed, run(cluster, model, pack=False, optimizer=optimizer))
    (line,) = packed.log
    assert line.startswith("pack_transfers: ")
    # FTRL sends a further one, computed from constants.
    assert line.rpartition(" ")[2] in ("23" if model is network else "89")


@pytest.mark.parametrize(
    "model",
    [
        partitioned,
        dropout,
        same_ids,
        in_python,
        in_a_loop,
    ],
)
def test_each_kind_of_model_is_equal_to_the_bit(cluster, model):
    packed = run(cluster, model, pack=True, ps_tasks=2)
    assert_equal(packed, run(cluster, model, pack=False, ps_tasks=2))
    assert len(packed.log) == 1
    assert "cross between tasks as" in packed.log[0]


@pytest.mark.parametrize("trainers, is_packed", [(1, False), (2, True)])
def test_by_default_steps_are_packed_if_several_tasks_train(
    cluster, monkeypatch, trainers, is_packed
):
    spec = {**cluster.spec, "worker": cluster.spec["worker"] * trainers}
    config = {"cluster": spec, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert [bool(run(cluster, network, pack=None).log)] == [is_packed]


def test_gradients_clipped_by_their_global_norm_are_equal_to_the_bit(cluster):
    packed = run(cluster, embeddings, pack=True, train_op=clipped, ps_tasks=2)
    plain = run(cluster, embeddings, pack=False, train_op=clipped, ps_tasks=2)
    assert_equal(packed, plain)


def test_hooks_get_what_they_would_get_without_packing(cluster, tmp_path):
    def hooks(loss):
        gradients = tf.gradients(loss, tf1.trainable_variables())
        weights = [v.read_value() for v in tf1.trainable_variables()]
        return [
            Fetching({"loss": loss, "gradients": gradients}),
            Fetching([loss * 2, weights], every=4),
            Fetching(loss.name, every=5),
            train.NanTensorHook(loss),
            train.LoggingTensorHook({"loss": loss}, every_n_iter=3),
            train.StopAtStepHook(last_step=100),
        ]

    packed = run(
        cluster, network, pack=True, hooks=hooks, checkpoint_dir=tmp_path / "packed"
    )
    plain = run(
        cluster, network, pack=False, hooks=hooks, checkpoint_dir=tmp_path / "plain"
    )
    assert_equal(packed, plain)
    assert [len(each) for each in packed.fetched] == [12, 3, 2]
    for step in (5, 10, 12):
        mine, other = (
            tf.train.load_checkpoint(f"{tmp_path}/{name}/model.ckpt-{step}")
            for name in ("packed", "plain")
        )
        assert mine.get_variable_to_shape_map() == other.get_variable_to_shape_map()
        for name in mine.get_variable_to_shape_map():
            np.testing.assert_array_equal(mine.get_tensor(name), other.get_tensor(name))
    # Without packing, chance can make a summary come a step sooner: the hook may read
    # the global step after it has been increased.
    losses = [float(loss) for _, loss in plain.results]
    expected = [(step, "loss", losses[step - 1]) for step in (1, 4, 7, 10)]
    assert summaries(tmp_path / "packed") == expected


def summaries(folder):
    return [
        (event.step, value.tag, value.simple_value)
        for path in sorted(folder.glob("events.*"))
        for event in train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss"
    ]


def test_a_loss_that_becomes_nan_ends_the_training_at_the_same_step(cluster):
    def hooks(loss):
        return [Fetching(loss), train.NanTensorHook(loss)]

    seen = []
    for pack in (True, False):
        made = []

        def keeping(loss, made=made):
            made.extend(hooks(loss))
            return made

        with pytest.raises(train.NanLossDuringTrainingError):
            run(
                cluster,
                lambda features: network(features) ** 9,
                pack=pack,
                optimizer=lambda: train.GradientDescentOptimizer(1e9),
                hooks=keeping,
            )
        seen.append(made[0].fetched)
    np.testing.assert_array_equal(*seen)
    assert np.isnan(seen[0][-1])
    assert len(seen[0]) > 1


def test_an_error_of_a_packed_step_names_the_op_of_the_program(cluster):
    def model(features):
        net = dense(dense(features["x"], 8, "first"), 8, "second")
        return loss_of(tf.gather(net, tf.range(99), name="mine"), tf.ones([99]))

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        run(cluster, model, pack=True)
    assert raised.value.op.name == "mine"
    assert "packed_step/" not in raised.value.message
    assert "in model\n" in raised.value.message


def test_a_step_with_feeds_is_packed_where_they_are_placeholders(cluster):
    fed = {}

    def model(features):
        with tf1.device(cluster.worker):
            fed["x"] = tf1.placeholder(tf.float32, [None, 4])
            fed["y"] = tf1.placeholder(tf.float32, [None])
        return network(fed)

    def call(session, train_op, loss):
        rows = 3 + len(fed)
        return session.run(
            {"loss": loss, "op": train_op},
            {fed["x"]: np.full([rows, 4], 0.5), fed["y"]: np.ones(rows)},
        )["loss"]

    packed = run(cluster, model, pack=True, call=call)
    assert_equal(packed, run(cluster, model, pack=False, call=call))
    assert len(packed.log) == 1


def test_what_cannot_be_packed_runs_as_it_is_and_the_log_says_why_once(cluster):
    def model(features):
        weights = [
            tf1.get_variable(f"{name}_kernel", [4, 1], use_resource=False)
            for name in "ab"
        ]
        net = tf.matmul(features["x"], weights[0]) + tf.matmul(
            features["x"], weights[1]
        )
        return tf.reduce_mean(tf.square(net[:, 0] - features["y"]))

    packed = run(cluster, model, pack=True)
    assert len(packed.log) == 1
    assert packed.log[0].startswith(
        "pack_transfers: a step runs as it is, because it has a reference variable, '"
    )
    packed.log.clear()
    assert_equal(packed, run(cluster, model, pack=False))
