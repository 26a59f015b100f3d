"""Random programs: an Estimator, its data and its hooks, made from a number.

Not collected by pytest; `test_random_programs` loads it, by path. The same number makes
the same program. What chance decides in TensorFlow itself is left out: hooks read the
global step before the step adds to it, and summaries are of the step's own tensors.
"""

import dataclasses
import random

import numpy as np
import tensorflow as tf
from tensorflow.python.training import training_util

tf1 = tf.compat.v1
layers = tf1.layers
ROWS = 120
function = tf.function(autograph=False)


def rows(seed):
    """Return features and labels."""
    draw = np.random.RandomState(seed)
    x = draw.normal(size=[ROWS, 12]).astype(np.float32)
    words = draw.randint(0, 40, size=[ROWS, 4])
    names = np.array(["red", "green", "blue", "none"])[words[:, 0] % 4]
    labels = (x[:, :1] * x[:, 1:2] + words[:, :1] % 2 > 0.3).astype(np.float32)
    return {"x": x, "words": words, "name": names}, labels


# Layers: each takes the features, the tensor so far, and a `random.Random`.


def dense(features, hidden, draw):
    activation = draw.choice([None, tf.nn.relu, tf.tanh, tf.sigmoid, tf.nn.elu])
    return layers.dense(hidden, draw.choice([3, 8, 16, 40]), activation)


def wide_dense(features, hidden, draw):
    return layers.dense(hidden, draw.choice([64, 130]), tf.nn.relu)


def dropout(features, hidden, draw):
    seed = draw.choice([None, 5])
    return layers.dropout(hidden, draw.uniform(0.1, 0.6), seed=seed, training=True)


def noise(features, hidden, draw):
    return hidden + 0.1 * tf.random.normal(
        tf.shape(hidden), seed=draw.choice([None, 3])
    )


def stateless_noise(features, hidden, draw):
    step = tf.cast(tf1.train.get_global_step(), tf.int32)
    seed = tf.stack([tf.constant(draw.randint(0, 99)), step])
    return hidden + 0.1 * tf.random.stateless_normal(tf.shape(hidden), seed)


def generator_noise(features, hidden, draw):
    generator = tf.random.Generator.from_seed(draw.randint(0, 99))
    return hidden + 0.1 * generator.normal(tf.shape(hidden))


def batch_norm(features, hidden, draw):
    fused = draw.choice([None, False])
    momentum = draw.choice([0.9, 0.99])
    return layers.batch_normalization(
        hidden, momentum=momentum, fused=fused, training=True
    )


def convolution(features, hidden, draw):
    image = tf.reshape(features["x"], [-1, 3, 4, 1])
    image = layers.conv2d(image, draw.choice([2, 4]), 2, activation=tf.nn.relu)
    image = layers.max_pooling2d(image, 2, 1)
    return tf.concat([hidden, layers.flatten(image)], 1)


def embedding(features, hidden, draw):
    table = tf1.get_variable(f"table_{draw.randint(0, 10**6)}", [40, 4])
    words = tf.nn.embedding_lookup(table, features["words"])
    return tf.concat([hidden, tf.reduce_mean(words, 1)], 1)


def gathered_twice(features, hidden, draw):
    table = tf1.get_variable(f"table_{draw.randint(0, 10**6)}", [40, 4])
    first = tf.gather(table, features["words"][:, 0])
    second = tf.gather(table, features["words"][:, 1])
    return tf.concat([hidden, first * second], 1)


def string_table(features, hidden, draw):
    keys = tf.lookup.KeyValueTensorInitializer(
        ["red", "green", "blue"], tf.constant([0, 1, 2], tf.int64)
    )
    table = tf.lookup.StaticVocabularyTable(keys, 2)
    indices = table.lookup(features["name"])
    return tf.concat([hidden, tf.one_hot(indices, 5)], 1)


def branch(features, hidden, draw):
    width = hidden.shape[-1]
    is_high = tf.reduce_mean(features["x"]) > draw.uniform(-0.1, 0.1)
    weights = tf1.get_variable(f"branch_{draw.randint(0, 10**6)}", [width])
    return tf.cond(is_high, lambda: hidden * weights, lambda: tf.tanh(hidden) + weights)


def branch_by_step(features, hidden, draw):
    step = tf1.train.get_global_step()
    every = draw.choice([2, 7, 50])
    return tf.cond(
        tf.equal(step % every, 0), lambda: hidden * 0.5, lambda: tf.tanh(hidden)
    )


def loop(features, hidden, draw):
    weights = tf1.get_variable(f"loop_{draw.randint(0, 10**6)}", [hidden.shape[-1]])
    steps = draw.choice([1, 3])
    return tf.while_loop(
        lambda i, _: i < steps,
        lambda i, h: (i + 1, tf.tanh(h * weights) + h * 0.5),
        [tf.constant(0), hidden],
    )[1]


def in_function(features, hidden, draw):
    """A layer of nested functions, which may draw, branch or loop."""
    kind, seed = (
        draw.choice(["plain", "draws", "branches", "loops"]),
        draw.choice([None, 7]),
    )

    @function
    def inner(h):
        if kind == "draws":
            return h + 0.1 * tf.random.normal(tf.shape(h), seed=seed)
        if kind == "branches":
            return tf.cond(tf.reduce_sum(h) > 0, lambda: tf.nn.relu(h), lambda: h * 0.3)
        if kind == "loops":
            return tf.while_loop(
                lambda i, _: i < 2, lambda i, v: (i + 1, tf.sin(v)), [tf.constant(0), h]
            )[1]
        return tf.sigmoid(h) * h

    @function
    def outer(h):
        return inner(h) + h * 0.1

    chosen = draw.choice([inner, outer])
    return tf.ensure_shape(chosen(hidden), hidden.shape)


def python(features, hidden, draw):
    shift = tf1.py_func(lambda x: np.float32(x.mean()), [features["x"]], tf.float32)
    return hidden + tf.stop_gradient(tf.reshape(shift, []))


def double(features, hidden, draw):
    hidden = layers.dense(tf.cast(hidden, tf.float64), 6, tf.tanh)
    return tf.cast(hidden, tf.float32)


def weight_sums(features, hidden, draw):
    sums = tf1.get_variable(
        f"sums_{draw.randint(0, 10**6)}", [hidden.shape[-1]], trainable=False
    )
    updated = tf1.assign(sums, 0.9 * sums + 0.1 * tf.reduce_mean(hidden, 0))
    with tf.control_dependencies([updated]):
        return hidden - tf.stop_gradient(updated)


_LAYERS = [dense] * 6 + [
    *(wide_dense, dropout, noise, stateless_noise, generator_noise, batch_norm),
    *(batch_norm, convolution, embedding, embedding, gathered_twice, string_table),
    *(branch, branch_by_step, loop, in_function, in_function, double, weight_sums),
]
_RANDOM = {dropout, noise}
_OPTIMIZERS = [
    lambda rate: tf1.train.GradientDescentOptimizer(rate),
    lambda rate: tf1.train.MomentumOptimizer(rate, 0.9),
    lambda rate: tf1.train.MomentumOptimizer(rate, 0.8, use_nesterov=True),
    lambda rate: tf1.train.AdamOptimizer(rate),
    lambda rate: tf1.train.AdagradOptimizer(rate),
    lambda rate: tf1.train.FtrlOptimizer(rate, l1_regularization_strength=0.01),
    lambda rate: tf1.train.RMSPropOptimizer(rate, momentum=0.5, centered=True),
    lambda rate: tf1.train.AdadeltaOptimizer(rate * 10),
    lambda rate: tf1.train.AdamOptimizer(rate, beta2=0.99, epsilon=1e-4),
]


# How the variables are trained: of the optimizer, the losses and the global step.


def _gradients(optimizer, loss, draw):
    pairs = [(g, v) for g, v in optimizer.compute_gradients(loss) if g is not None]
    is_clipped = draw.random() < 0.5
    if is_clipped and all(v.dtype.base_dtype == tf.float32 for _, v in pairs):
        clipped, norm = tf.clip_by_global_norm([g for g, _ in pairs], 1.0)
        tf1.summary.scalar("norm", norm)
        return list(zip(clipped, [v for _, v in pairs], strict=True))
    return pairs


def minimized(optimizer, loss, step, draw):
    return optimizer.apply_gradients(_gradients(optimizer, loss, draw), step)


def accumulated(optimizer, loss, step, draw):
    """Apply the sum of gradients every so many steps."""
    every = draw.choice([2, 4])
    pairs = [(tf.convert_to_tensor(g), v) for g, v in _gradients(optimizer, loss, draw)]
    sums = [
        tf1.get_variable(
            f"sum_{i}",
            v.shape,
            v.dtype.base_dtype,
            tf1.zeros_initializer(),
            trainable=False,
        )
        for i, (_, v) in enumerate(pairs)
    ]
    added = [tf1.assign_add(s, g) for s, (g, _) in zip(sums, pairs, strict=True)]
    with tf.control_dependencies(added):
        is_last = tf.equal(step.read_value() % every, every - 1)

    def apply():
        totals = [
            (s.read_value() / every, v) for s, (_, v) in zip(sums, pairs, strict=True)
        ]
        applied = optimizer.apply_gradients(totals)
        with tf.control_dependencies([applied]):
            return tf.group(*[tf1.assign(s, tf.zeros_like(s)) for s in sums])

    def keep():
        return tf.no_op()

    optimizer._create_slots([v for _, v in pairs])  # not in the branch
    optimizer._prepare()
    with tf.control_dependencies([tf.cond(is_last, apply, keep)]):
        return tf1.assign_add(step, 1).op


def in_turns(optimizer, loss, step, draw):
    """Train two sets of variables one after the other in each step, as a GAN does."""
    variables = tf1.trainable_variables()
    half = max(1, len(variables) // 2)
    first = optimizer.minimize(loss, var_list=variables[:half])
    if not variables[half:]:
        with tf.control_dependencies([first]):
            return tf1.assign_add(step, 1).op
    other = draw.choice(_OPTIMIZERS)(0.01)
    with tf.control_dependencies([first]):
        again = tf.identity(loss) * 0.5
        return other.minimize(again + 0 * loss, step, var_list=variables[half:])


def averaged(optimizer, loss, step, draw):
    """Keep moving averages of the variables."""
    trained = minimized(optimizer, loss, step, draw)
    averages = tf1.train.ExponentialMovingAverage(0.95, draw.choice([None, step]))
    with tf.control_dependencies([trained]):
        return averages.apply(tf1.trainable_variables())


_TRAINED = [minimized, minimized, minimized, accumulated, in_turns, averaged]


class CountSteps(tf1.train.SessionRunHook):
    """A hook of a program: it sees each step."""

    steps = 0

    def after_run(self, run_context, run_values):
        self.steps += 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A program, which trains in a folder.

    Attributes:
        number: The number that it is made from.
        steps: The steps that it trains, unless its data ends before.
        steps_per_run: As for RunConfig.
    """

    number: int
    steps: int = 220
    steps_per_run: int | str = "auto"

    def __call__(self, folder):
        """Train a model in `folder`."""
        draw = random.Random(self.number)
        every = draw.choice([1, 3, 10, 37, 100, 1000])
        config = tf.estimator.RunConfig(
            folder,
            steps_per_run=self.steps_per_run,
            tf_random_seed=draw.choice([1, 11]),
            save_checkpoints_steps=draw.choice([7, 45, 1000]),
            save_summary_steps=draw.choice([every, 33, 1000]),
            log_step_count_steps=draw.choice([every, 10, 1000]),
            keep_checkpoint_max=100,
            checkpoint_save_graph_def=False,
        )
        if draw.random() < 0.2:
            estimator = self._canned(draw, config)
        else:
            seed = draw.random()
            estimator = tf.estimator.Estimator(
                lambda features, labels, mode: _model(
                    features, labels, mode, random.Random(seed)
                ),
                config=config,
            )
        batches = draw.choice([None, None, None, 150, 201])
        batch = draw.choice([1, 8, 32])
        is_shuffled = draw.random() < 0.3
        hooks = [CountSteps()] if draw.random() < 0.05 else []

        def input_fn():
            data = tf.data.Dataset.from_tensor_slices(rows(self.number % 7))
            if is_shuffled:
                data = data.shuffle(50, seed=3)
            data = data.repeat().batch(batch)
            data = data if batches is None else data.take(batches)
            iterator = tf1.data.make_initializable_iterator(data)
            initializer = iterator.initializer
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, initializer)
            reads = [
                training_util._get_or_create_global_step_read(),
                tf1.train.get_global_step()._graph_element,
            ]
            with tf.control_dependencies(reads):
                return tf.nest.map_structure(tf.identity, iterator.get_next())

        estimator.train(input_fn, hooks=hooks, steps=self.steps)

    def _canned(self, draw, config):
        column = tf.feature_column
        words = column.categorical_column_with_hash_bucket("words", 20, tf.int64)
        name = column.categorical_column_with_vocabulary_list("name", ["red", "blue"])
        wide = [words, name, column.crossed_column(["words", "name"], 30)]
        deep = [
            column.numeric_column("x", 12),
            column.embedding_column(words, draw.choice([2, 8])),
            column.indicator_column(name),
        ]
        units = draw.choice([[8], [16, 8]])
        canned = tf1.estimator
        dropout = draw.choice([None, None, 0.3])
        kind = draw.choice(["dnn", "linear", "combined", "regressor"])
        if kind == "dnn":
            return canned.DNNClassifier(units, deep, dropout=dropout, config=config)
        if kind == "linear":
            return canned.LinearClassifier(wide, config=config)
        if kind == "regressor":
            return canned.DNNRegressor(units, deep, optimizer="Adam", config=config)
        return canned.DNNLinearCombinedClassifier(
            linear_feature_columns=wide,
            dnn_feature_columns=deep,
            dnn_hidden_units=units,
            dnn_dropout=dropout,
            config=config,
        )


def _model(features, labels, mode, draw):
    """Return the EstimatorSpec of a model of random layers."""
    allowed = (
        _LAYERS if draw.random() < 0.3 else [e for e in _LAYERS if e not in _RANDOM]
    )
    chosen = draw.choices(allowed, k=draw.randint(0, 5))
    if draw.random() < 0.03:
        chosen.append(python)
    hidden = features["x"]
    for number, layer in enumerate(chosen):
        with tf1.variable_scope(f"layer_{number}"):
            hidden = layer(features, hidden, draw)
        if draw.random() < 0.3:
            tf1.summary.histogram(f"hidden_{number}", hidden)
    logits = layers.dense(hidden, 1)
    losses = [tf1.losses.sigmoid_cross_entropy(labels, logits)]
    if draw.random() < 0.3:
        losses.append(0.1 * tf1.losses.mean_squared_error(labels, tf.sigmoid(logits)))
    if draw.random() < 0.3:
        losses.append(
            0.01
            * tf.add_n(
                [
                    tf.nn.l2_loss(tf.cast(v, tf.float32))
                    for v in tf1.trainable_variables()
                ]
            )
        )
    loss = tf.add_n(losses)
    tf1.summary.scalar("first_loss", losses[0])
    step = tf1.train.get_global_step()
    rate = draw.choice([0.001, 0.01, 0.05])
    if draw.random() < 0.3:
        rate = tf1.train.exponential_decay(rate, step, 20, 0.9, draw.random() < 0.5)
    make = draw.choice(_OPTIMIZERS)
    if isinstance(rate, tf.Tensor) and make is _OPTIMIZERS[7]:
        rate = 0.01
    trained = draw.choice(_TRAINED)
    updates = tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
    is_first = draw.random() < 0.5
    with tf.control_dependencies(updates if is_first else []):
        train_op = trained(make(rate), loss, step, draw)
    if not is_first:
        train_op = tf.group(train_op, *updates)
    if draw.random() < 0.3:
        _, update = tf1.metrics.mean(tf.sigmoid(logits), name="mean_prediction")
        tf1.summary.scalar("metric", update)
        train_op = tf.group(train_op, update)
    hooks = []
    if draw.random() < 0.4:
        hooks.append(
            tf1.train.LoggingTensorHook({"logged": losses[0]}, draw.choice([1, 9, 50]))
        )
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, training_hooks=hooks
    )
