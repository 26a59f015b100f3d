"""Trains small models with `tf.contrib`, and writes their variables and values.

models.json was written with TensorFlow 1.15.5; test_original.py runs it in TensorFlow 1
mode. Variables start with values that do not depend on a random number generator.

    python models.py FILE
"""

import json
import sys

import numpy as np
import tensorflow as tf

contrib = tf.contrib
X = np.cos(np.arange(128)).reshape(32, 4).astype("f")
Y = (X.sum(1) > 0).astype("i4")


def train(loss, optimizer=None, fetches=()):
    """Return names and values of the variables after three steps, and other values."""
    step = (optimizer or tf.train.AdamOptimizer(0.01)).minimize(loss)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        for v in tf.trainable_variables():
            start = 0.3 * np.sin(np.arange(np.prod(v.shape.as_list())) + len(v.op.name))
            v.load(start.reshape(v.shape.as_list()), session)
        for _ in range(3):
            session.run(step)
        values = session.run({v.op.name: v for v in tf.global_variables()})
        values.update(enumerate(session.run(list(fetches))))
    return {str(name): digest(values[name]) for name in values}


def digest(values):
    """Return three numbers for an array that another array hardly has."""
    flat = np.ravel(values).astype(float)
    weighted = (flat * np.cos(np.arange(flat.size))).sum()
    return [flat.size, *(round(float(x), 6) for x in (flat.sum(), weighted))]


def attention():
    s = contrib.seq2seq
    inputs = tf.constant(np.cos(np.arange(96)).reshape(2, 6, 8), tf.float32)
    embedding = tf.get_variable("embedding", [10, 4])
    mechanism = s.BahdanauAttention(8, inputs, memory_sequence_length=[6, 4])
    cell = s.AttentionWrapper(
        contrib.rnn.LSTMCell(8), mechanism, attention_layer_size=8
    )
    ids = tf.nn.embedding_lookup(embedding, [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])
    helper = s.TrainingHelper(ids, tf.constant([5, 3]))
    decoder = s.BasicDecoder(
        cell, helper, cell.zero_state(2, tf.float32), tf.layers.Dense(10)
    )
    outputs, _, _ = s.dynamic_decode(decoder)
    weights = tf.sequence_mask([5, 3], 5, tf.float32)
    return train(
        s.sequence_loss(outputs.rnn_output, tf.ones([2, 5], tf.int32), weights)
    )


def beam_search():
    s = contrib.seq2seq
    inputs = tf.constant(np.cos(np.arange(96)).reshape(2, 6, 8), tf.float32)
    embedding = tf.get_variable("embedding", [10, 4])
    mechanism = s.LuongAttention(8, s.tile_batch(inputs, 3))
    cell = s.AttentionWrapper(
        contrib.rnn.LSTMCell(8), mechanism, attention_layer_size=8
    )
    state, layer = cell.zero_state(6, tf.float32), tf.layers.Dense(10)
    decoder = s.BeamSearchDecoder(
        cell, embedding, tf.fill([2], 1), 2, state, 3, output_layer=layer
    )
    outputs, end, lengths = s.dynamic_decode(decoder, maximum_iterations=7)
    fetches = [outputs.predicted_ids, end.log_probs, lengths]
    return train(tf.reduce_sum(embedding**2), fetches=fetches)


def crf():
    x = tf.get_variable("x", [2, 5, 3])
    tags = tf.constant([[0, 1, 2, 1, 0], [2, 1, 0, 0, 0]])
    lengths = tf.constant([5, 3])
    likelihood, transitions = contrib.crf.crf_log_likelihood(x, tags, lengths)
    decoded = contrib.crf.crf_decode(x, transitions, lengths)
    return train(-tf.reduce_mean(likelihood), fetches=decoded)


def layers():
    c = contrib.layers
    image = tf.reshape(tf.tile(tf.constant(X), [1, 16]), [32, 8, 8, 1])
    batch_norm = {"is_training": True, "updates_collections": None}
    net = c.conv2d(
        image, 4, [3, 3], normalizer_fn=c.batch_norm, normalizer_params=batch_norm
    )
    net = c.flatten(c.max_pool2d(c.separable_conv2d(net, 4, [3, 3], 1), 2))
    net = c.layer_norm(
        c.fully_connected(net, 8, weights_regularizer=c.l2_regularizer(0.1))
    )
    logits = c.fully_connected(net, 2, activation_fn=None)
    loss = tf.losses.sparse_softmax_cross_entropy(Y, logits)
    return train(loss + tf.losses.get_regularization_loss())


def cells():
    r = contrib.rnn
    x = tf.constant(np.cos(np.arange(40)).reshape(2, 5, 4), tf.float32)
    loss = 0.0
    for cell in (
        r.LSTMBlockCell(3),
        r.GRUBlockCell(3),
        r.LayerNormBasicLSTMCell(3),
        r.UGRNNCell(3),
        r.NASCell(3),
        r.AttentionCellWrapper(r.BasicLSTMCell(3), 2, state_is_tuple=True),
        r.CoupledInputForgetGateLSTMCell(3),
        r.IndRNNCell(3),
    ):
        scope = type(cell).__name__
        outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, scope=scope)
        loss += tf.reduce_sum(outputs**2)
    return train(loss)


def optimizers():
    result = {}
    for name, arguments in (
        ("AdamWOptimizer", {"weight_decay": 0.01}),
        ("MomentumWOptimizer", {"weight_decay": 0.01, "momentum": 0.9}),
        ("LazyAdamOptimizer", {}),
        ("NadamOptimizer", {}),
        ("AdaMaxOptimizer", {}),
        ("LARSOptimizer", {}),
        ("PowerSignOptimizer", {}),
    ):
        with tf.Graph().as_default():
            dense, table = tf.get_variable("v", [6]), tf.get_variable("e", [5, 2])
            rows = tf.nn.embedding_lookup(table, [1, 3])
            # Linear: in 1.15, a step with a decay may read a variable before or after.
            loss = tf.reduce_sum(dense * tf.range(6.0)) + tf.reduce_sum(rows)
            optimizer = getattr(contrib.opt, name)(learning_rate=0.1, **arguments)
            for variable, values in train(loss, optimizer).items():
                result[f"{name}: {variable}"] = values
    return result


def crossed_columns():
    c = contrib.layers
    first, second = (c.sparse_column_with_hash_bucket(key, 10) for key in "ab")
    indices = [[0, 0], [1, 0], [2, 0], [3, 0]]
    features = {
        "a": tf.SparseTensor(indices, ["u", "v", "w", "u"], [4, 1]),
        "b": tf.SparseTensor(indices, ["x", "y", "x", "z"], [4, 1]),
    }
    columns = [first, second, c.crossed_column([first, second], 20)]
    logits, _, _ = c.weighted_sum_from_feature_columns(features, columns, 1)
    labels = tf.constant([[0.0], [1.0], [1.0], [0.0]])
    return train(tf.losses.sigmoid_cross_entropy(labels, logits))


def canned():
    columns = [contrib.layers.real_valued_column("x", dimension=4)]
    estimator = contrib.learn.LinearClassifier(columns)
    estimator.fit(input_fn=input_fn, steps=20)
    loss = estimator.evaluate(input_fn=input_fn, steps=1)["loss"]
    names = estimator.get_variable_names()
    values = {n: digest(estimator.get_variable_value(n)) for n in names}
    return dict(values, loss=digest(loss))


def input_fn():
    return {"x": tf.constant(X)}, tf.constant(Y)


def main():
    tf.logging.set_verbosity(tf.logging.ERROR)
    result = {}
    for model in (
        attention,
        beam_search,
        crf,
        layers,
        cells,
        optimizers,
        crossed_columns,
        canned,
    ):
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            result[model.__name__] = model()
    with open(sys.argv[1], "w") as file:
        json.dump(result, file, indent=0, sort_keys=True)


if __name__ == "__main__":
    main()
