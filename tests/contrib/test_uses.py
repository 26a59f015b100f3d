"""Small uses of the original `tf.contrib`, as programs of 2018 wrote them.

The fixture runs this file as a program in TensorFlow 1 mode, which runs the uses.
"""

import json
import os
import sys
import tempfile
import traceback

import numpy as np
import pytest
import tensorflow as tf

c = getattr(tf, "contrib", None)
X = np.random.RandomState(0).rand(32, 4).astype("f")
Y = (X.sum(1) > 2).astype("i4")
IMAGES = np.random.RandomState(0).rand(2, 8, 8, 3).astype("f")
# Those whose values test_original.py does not compare.
CELLS = "BasicLSTMCell GRUCell SRUCell"
OPTIMIZERS = "AddSign GGT RegAdagrad Shampoo"
ATTENTIONS = "BahdanauMonotonic Luong LuongMonotonic"


def run(fetches, steps=1):
    """Return the values of fetches after some steps, with all variables at their start."""
    start = tf.global_variables_initializer(), tf.local_variables_initializer()
    with tf.Session() as session:
        session.run([*start, tf.tables_initializer()])
        return [session.run(fetches) for _ in range(steps)][-1]


def cell(name):
    made = getattr(c.rnn, name)(4)
    return run(tf.nn.dynamic_rnn(made, X[None], dtype=tf.float32)[0]).shape == (
        1,
        32,
        4,
    )


def optimizer(name):
    loss = tf.reduce_sum(tf.get_variable("v", initializer=tf.ones([3])) ** 2)
    step = getattr(c.opt, f"{name}Optimizer")(learning_rate=0.1).minimize(loss)
    return run([loss, step], steps=20)[0] < run([loss, step])[0]


def attention(name):
    """Train a decoder; return whether its loss falls below that of a guess."""
    s, sizes = c.seq2seq, tf.constant([6, 4])
    memory = tf.constant(np.random.rand(2, 6, 8).astype("f"))
    mechanism = getattr(s, f"{name}Attention")(8, memory, sizes)
    made = s.AttentionWrapper(c.rnn.LSTMCell(8), mechanism, attention_layer_size=8)
    table, output = tf.get_variable("table", [10, 4]), tf.layers.Dense(10)
    helper = s.TrainingHelper(tf.nn.embedding_lookup(table, [[1] * 5] * 2), [5, 3])
    start = made.zero_state(2, tf.float32)
    outputs = s.dynamic_decode(s.BasicDecoder(made, helper, start, output))[0]
    loss = s.sequence_loss(
        outputs.rnn_output, tf.ones([2, 5], "int32"), tf.ones([2, 5])
    )
    step = tf.train.get_or_create_global_step()
    return run(c.layers.optimize_loss(loss, step, 0.1, "Adam"), steps=10) < np.log(10)


def graph_editor():
    b = tf.constant(1.0) + 1.0
    return run(c.graph_editor.graph_replace(b * 2.0, {b: tf.constant(5.0)})) == 10


def quantize():
    net = c.layers.conv2d(IMAGES, 4, 3, normalizer_fn=c.layers.batch_norm)
    c.quantize.create_training_graph(quant_delay=0)
    kinds = {operation.type for operation in tf.get_default_graph().get_operations()}
    return "FakeQuantWithMinMaxVars" in kinds and run(net).shape == (2, 8, 8, 4)


def predictor():
    folder = os.path.join(tempfile.mkdtemp(), "model")
    with tf.Session() as session:
        x = tf.placeholder(tf.float32, [None])
        tf.saved_model.simple_save(session, folder, {"x": x}, {"y": 2 * x})
    return c.predictor.from_saved_model(folder)({"x": [1.0]})["y"].tolist() == [2.0]


def resnet():
    from tensorflow.contrib.slim.nets import resnet_v1

    resnet_v1.resnet_v1_50(tf.zeros([1, 64, 64, 3]), 10)
    return len(c.framework.get_variables_by_suffix("conv1/weights")) == 17


def input_fn():
    return {"x": tf.constant(X)}, tf.constant(Y)


def batches(params=None):
    rows = tf.data.Dataset.from_tensor_slices(({"x": X}, Y[:, None])).repeat()
    return rows.batch(8, drop_remainder=True)


def model_fn(features, labels, mode, params):
    logits = tf.layers.dense(features["x"], 2)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = tf.train.AdamOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    if params.get("use_tpu") is None:
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
    return c.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def learn_dnn():
    columns = c.learn.infer_real_valued_columns_from_input_fn(input_fn)
    found = c.learn.DNNClassifier([8], columns).fit(input_fn=input_fn, steps=20)
    return found.evaluate(input_fn=input_fn, steps=1)["global_step"] == 20


def learn_experiment():
    def make(run_config, hparams):
        found = tf.estimator.Estimator(model_fn, config=run_config, params={})
        return c.learn.Experiment(
            found, input_fn, input_fn, train_steps=6, eval_steps=1, eval_delay_secs=0
        )

    config = c.learn.RunConfig(model_dir=tempfile.mkdtemp())
    arguments = {"schedule": "train_and_evaluate", "hparams": c.training.HParams()}
    metrics, _ = c.learn.learn_runner.run(make, run_config=config, **arguments)
    return metrics["global_step"] == 6


def kmeans():
    def points():
        return tf.train.limit_epochs(tf.constant(X), num_epochs=1)

    found = c.factorization.KMeansClustering(3, use_mini_batch=False, random_seed=1)
    scores = [found.train(points).score(points) for _ in range(3)]
    return scores[-1] <= scores[0] and found.cluster_centers().shape == (3, 4)


def gmm():
    found = c.factorization.GMM(num_clusters=2, random_seed=1)
    found.fit(input_fn=lambda: (tf.constant(X), None), steps=3)
    return found.get_variable_value("clusters").shape == (2, 1, 4)


def timeseries():
    ts, times = c.timeseries, np.arange(300)
    reader = ts.NumpyReader({"times": times, "values": np.sin(times / 10.0)})
    found = ts.ARRegressor(20, 15, 5, 1)
    found.train(ts.RandomWindowInputFn(reader, batch_size=4, window_size=20), steps=10)
    evaluation = found.evaluate(ts.WholeDatasetInputFn(reader), steps=1)
    following = ts.predict_continuation_input_fn(evaluation, steps=10)
    return next(found.predict(following))["mean"].shape == (10, 1)


def tpu_estimator():
    config = c.tpu.RunConfig(tpu_config=c.tpu.TPUConfig(iterations_per_loop=5))
    found = c.tpu.TPUEstimator(model_fn, tempfile.mkdtemp(), config, {}, False, 8, 8)
    return found.train(batches, steps=5).evaluate(batches, steps=2)["global_step"] == 5


def canned_rnn():
    def sequences():
        values = tf.SparseTensor([[0, 0], [1, 0], [1, 1]], [1.0, 2.0, 3.0], [2, 2])
        return {"s": values}, np.array([[0], [1]])

    column = c.feature_column.sequence_numeric_column("s")
    found = c.estimator.RNNClassifier([column], num_units=[3])
    found.train(sequences, steps=2)
    return found.evaluate(sequences, steps=1)["global_step"] == 2


# Each is true.
USES = [
    *(f"cell({name!r})" for name in CELLS.split()),
    *(f"optimizer({name!r})" for name in OPTIMIZERS.split()),
    *(f"attention({name!r})" for name in ATTENTIONS.split()),
    *"""
canned_rnn()
gmm()
graph_editor()
kmeans()
learn_dnn()
learn_experiment()
predictor()
quantize()
resnet()
timeseries()
tpu_estimator()
c.crf.viterbi_decode(np.eye(3), np.zeros([3, 3]))[0] == [0, 1, 2]
np.isclose(run(c.distributions.MultivariateNormalDiag([0.0], [1.0]).prob([0.0])), 0.398942)
np.isclose(run(c.distributions.bijectors.Exp().inverse(np.e)), 1)
np.allclose(run(c.image.dense_image_warp(IMAGES, np.zeros([2, 8, 8, 2], "f"))), IMAGES)
run(c.image.rotate(IMAGES, 0.5)).shape == IMAGES.shape
np.isclose(run(c.integrate.odeint(lambda y, _: y, 1.0, [0.0, 1.0]))[1], np.e)
list(c.labeled_tensor.LabeledTensor(tf.constant(X), ["a", "b"]).axes) == ["a", "b"]
run(c.lookup.index_table_from_tensor(["a", "b"]).lookup(tf.constant("b"))) == 1
run(c.losses.metric_learning.triplet_semihard_loss(Y, tf.nn.l2_normalize(X, 1))) > 0
run(c.metrics.streaming_accuracy(Y, Y)[1]) == 1
np.array_equal(run(c.nn.nth_element(X, 1)), np.sort(X, 1)[:, 1])
run(c.resampler.resampler(tf.ones([1, 4, 4, 1]), tf.ones([1, 2]))) == 1
run(c.signal.stft(X.reshape(1, -1), 32, 16)).shape == (1, 7, 17)
np.allclose(run(c.sparsemax.sparsemax(X)).sum(1), 1)
c.training.HParams(a=1).parse("a=3").values() == {"a": 3}
""".strip().splitlines(),
]


@pytest.fixture(scope="module")
def results(original_contrib, run_script, tmp_path_factory):
    """Return what became of each use; all in one process, as its start takes seconds."""
    file = tmp_path_factory.mktemp("uses") / "uses.json"
    done = run_script("--tf1", __file__, file, timeout=280, **original_contrib)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.mark.parametrize("use", USES)
def test_a_use_has_its_result(use, results):
    assert results[use] == "True"


def result(use):
    """Return "True", "False" or an error."""
    with tf.Graph().as_default():
        try:
            return str(bool(eval(use)))
        except Exception:  # noqa: BLE001 - the test shows it
            return traceback.format_exc()


if __name__ == "__main__":
    with open(sys.argv[1], "w") as opened:
        json.dump({use: result(use) for use in USES}, opened)
