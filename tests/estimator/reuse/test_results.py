"""Results with graphs that are kept are those of TensorFlow's way, to the bit."""

import collections
import glob

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
Point = collections.namedtuple("Point", ["x", "y"])
_X = np.arange(30, dtype="f").reshape(10, 3) / 7
_Y = np.arange(10, dtype="f")
_WORDS = np.array([f"w{n % 4}" for n in range(10)])


def slices(structure, batch=4):
    return lambda: tf.data.Dataset.from_tensor_slices(structure).batch(batch)


def ragged():
    lengths = [0, 1, 3, 2, 0, 1, 1, 2, 3, 1]
    values = tf.RaggedTensor.from_row_lengths(np.arange(14, dtype="f"), lengths)
    return tf.data.Dataset.from_tensor_slices(({"r": values}, _Y)).batch(4)


def sparse():
    dense = tf.data.Dataset.from_tensor_slices((_X, _Y)).batch(4)
    return dense.map(lambda x, y: ({"s": tf.sparse.from_dense(x)}, y))


def tensors_of_an_iterator():
    dataset = tf.data.Dataset.from_tensor_slices((_X, _Y)).batch(4)
    x, y = tf1.data.make_one_shot_iterator(dataset).get_next()
    return {"x": x, "same": x, "known": x + 1}, y


def features_as_labels():
    dataset = tf.data.Dataset.from_tensor_slices(_Y).batch(4)
    x = tf1.data.make_one_shot_iterator(dataset).get_next()
    return x, x


STRUCTURES = {
    "dict": slices(({"x": _X, "w": _WORDS}, _Y)),
    "tensor": slices((_X, _Y)),
    "named tuple": slices((Point(_X, _Y), _Y)),
    "nested": slices(({"a": {"b": _X, "c": (_Y, _X)}}, _Y)),
    "ragged": ragged,
    "sparse": sparse,
    "iterator": tensors_of_an_iterator,
    "one tensor": features_as_labels,
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_features_and_labels_have_any_structure(pair, linear, refusals, name):
    pair = pair(linear)
    pair.train(STRUCTURES[name])
    pair.assert_equal(STRUCTURES[name])
    assert pair.calls == ["eval", "infer"]
    assert refusals == []


def test_queues_of_an_input_fn_run_for_each_call(pair, linear, refusals):
    queue = tf1.estimator.inputs.numpy_input_fn(
        {"x": _X}, _Y, batch_size=4, num_epochs=1, shuffle=False
    )
    pair = pair(linear)
    pair.train(queue)
    pair.assert_equal(queue, times=3)
    assert pair.calls == ["eval", "infer"]
    assert refusals == []


def test_predict_yields_batches_and_chosen_keys(pair, linear, rows, assert_equal):
    pair = pair(linear)
    pair.train(rows())
    for options in ({"predict_keys": ["twice"]}, {"yield_single_examples": False}, {}):
        expected = list(pair.stock.predict(rows(), **options))
        for _ in range(2):
            assert_equal(list(pair.kept.predict(rows(), **options)), expected)
    with pytest.raises(ValueError, match="Expected to run at least one output"):
        next(pair.kept.predict(rows(), predict_keys=["none"]))
    assert pair.calls == ["infer"]


def test_features_that_the_model_does_not_use_show_that_the_input_has_an_end(
    pair, caplog
):
    def model_fn(features, mode):
        weight = tf1.get_variable("w", [])
        return tf.estimator.EstimatorSpec(
            mode,
            predictions={"y": features["x"] * weight},
            loss=tf.reduce_sum(weight),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    def numbers():
        dataset = tf.data.Dataset.range(4).batch(2)
        number = tf1.data.make_one_shot_iterator(dataset).get_next()
        return {"x": tf.cast(number, tf.float32) * 2, "id": number}

    pair = pair(model_fn, params=None)
    pair.train(numbers)
    for _ in range(2):
        assert len(list(pair.kept.predict(numbers))) == 4
    assert pair.calls == ["infer"]
    assert "predict yields forever" not in caplog.text


def test_a_feature_may_be_a_prediction(pair):
    def model_fn(features, mode):
        tf1.get_variable("w", [])
        return tf.estimator.EstimatorSpec(
            mode,
            predictions=features,
            loss=tf.constant(0.0),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    pair = pair(model_fn, params=None)
    words = slices({"w": _WORDS})
    pair.train(words)
    expected = [row["w"] for row in pair.stock.predict(words)]
    assert [row["w"] for row in pair.kept.predict(words)] == expected
    assert [row["w"] for row in pair.kept.predict(words)] == expected


def test_text_keeps_zeros_at_its_end(pair, linear):
    pair = pair(linear)

    def words():
        return tf.data.Dataset.from_tensors(({"w": [b"a\0", b"a"]}, [1.0, 2.0]))

    def one():
        return tf.data.Dataset.from_tensors(({"w": b"a\0"}, 1.0))

    pair.train(words)
    pair.assert_equal(words)
    assert pair.kept.evaluate(one) == pair.stock.evaluate(one)


def test_steps_and_the_end_of_the_data_end_an_evaluation(pair, linear, rows):
    pair = pair(linear)
    pair.train(rows())
    for steps in (1, 2, 30):
        pair.assert_equal(rows(), steps=steps)
    with pytest.raises(ValueError, match="Must specify steps > 0, given: 0"):
        pair.kept.evaluate(rows(), steps=0)


def test_metrics_begin_anew_at_each_evaluation(pair, linear, rows):
    pair = pair(linear)
    pair.train(rows())
    for seed in range(3):
        pair.assert_equal(rows(seed=seed))
    empty = rows(count=0)
    pair.assert_equal(empty)
    assert pair.calls == ["eval", "infer"]


def events(folder):
    found = []
    for path in sorted(glob.glob(f"{folder}/events*")):
        for event in tf1.train.summary_iterator(path):
            for value in event.summary.value:
                found.append((event.step, value.SerializeToString()))
    return found


def test_summaries_are_equal(pair, linear, rows):
    pair = pair(linear)
    for _ in range(2):
        pair.train(rows())
        pair.stock.evaluate(rows(), name="stock")
        pair.kept.evaluate(rows(), name="kept")
    expected = events(pair.stock.eval_dir("stock"))
    assert len(expected) == 2 * 4  # error, loss, rms and the checkpoint's path
    assert events(pair.kept.eval_dir("kept")) == expected


def test_canned_estimators(tmp_path, assert_equal, refusals):
    columns = [
        tf.feature_column.numeric_column("x", shape=[3]),
        tf.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_vocabulary_list(
                "w", ["w0", "w1", "w2"], num_oov_buckets=1
            ),
            4,
        ),
    ]

    def estimator(reuse_graphs):
        return tf.estimator.DNNClassifier(
            [5],
            columns,
            n_classes=3,
            config=er.RunConfig(tmp_path, reuse_graphs=reuse_graphs),
        )

    data = slices(({"x": _X, "w": _WORDS}, (_Y % 3).astype("i")))
    stock, kept = estimator(False), estimator(True)
    stock.train(data)
    for _ in range(2):
        assert_equal(kept.evaluate(data), stock.evaluate(data))
        found, expected = list(kept.predict(data)), list(stock.predict(data))
        for a, b in zip(found, expected, strict=True):
            assert_equal(
                {k: list(v) for k, v in a.items()}, {k: list(v) for k, v in b.items()}
            )
    assert refusals == []


def test_a_model_of_keras(tmp_path, assert_equal, refusals):
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(3, input_shape=(3,), name="a"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(1, name="b"),
        ]
    )
    model.compile(tf.keras.optimizers.legacy.SGD(0.01), "mse", metrics=["mae", "mse"])

    def estimator(reuse_graphs):
        config = er.RunConfig(tmp_path, reuse_graphs=reuse_graphs)
        return tf.keras.estimator.model_to_estimator(model, config=config)

    data = slices(({"a_input": _X}, _Y.reshape(-1, 1)))
    stock, kept = estimator(False), estimator(True)
    stock.train(data)
    for _ in range(2):
        assert_equal(kept.evaluate(data), stock.evaluate(data))
        assert_equal(
            [row["b"] for row in kept.predict(data)],
            [row["b"] for row in stock.predict(data)],
        )
    assert refusals == []


def test_tables_of_input_fn_and_of_model_fn(pair, tmp_path_factory, refusals):
    vocabulary = tmp_path_factory.mktemp("words") / "vocabulary.txt"
    vocabulary.write_text("w0\nw1\nw2\n")

    def input_fn():
        keys = tf.lookup.KeyValueTensorInitializer(["w0", "w1"], [5, 6])
        table = tf1.lookup.StaticHashTable(keys, -1)
        dataset = tf.data.Dataset.from_tensor_slices((_WORDS, _Y)).batch(4)
        w, y = tf1.data.make_one_shot_iterator(dataset).get_next()
        return {"w": w, "looked_up": table.lookup(w)}, y

    def model_fn(features, labels, mode):
        table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            1,
        )
        w = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
        x = table.lookup(features["w"]) + tf.cast(features["looked_up"], tf.int64)
        predicted = w * tf.cast(x, tf.float32)
        return tf.estimator.EstimatorSpec(
            mode,
            predictions={"x": x},
            loss=tf.reduce_mean(predicted),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    pair = pair(model_fn)
    pair.train(input_fn)
    pair.assert_equal(input_fn)
    vocabulary.write_text("w2\nw1\nw0\n")  # A session of its own would read it, too.
    _, found = pair.assert_equal(input_fn)
    assert [row["x"] for row in found][:3] == [2 + 5, 1 + 6, 0 - 1]
    assert pair.calls == ["eval", "infer"]
    assert refusals == []


def test_random_numbers_are_those_of_a_new_session(pair, refusals):
    def model_fn(features, labels, mode):
        w = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
        noise = tf1.random_uniform(
            tf.shape(labels if labels is not None else features["x"][:, 0])
        )
        dropped = tf1.layers.dropout(features["x"], 0.5, training=True)
        predicted = w * (noise + tf.reduce_sum(dropped, 1))
        return tf.estimator.EstimatorSpec(
            mode,
            predictions={"predicted": predicted},
            loss=tf.reduce_mean(predicted),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    def shuffled():  # Draws a seed of the graph before model_fn does.
        data = tf.data.Dataset.from_tensor_slices(({"x": _X}, _Y))
        return data.shuffle(10).batch(4)

    pair = pair(model_fn, config={"tf_random_seed": 7})
    pair.train(shuffled)
    pair.assert_equal(shuffled, times=3)
    pair.assert_equal(slices(({"x": _X}, _Y)))
    assert pair.calls == ["eval", "infer"] * 2  # other seeds are another graph
    assert refusals == []


def test_variables_that_an_evaluation_changes_are_restored(pair, refusals):
    def model_fn(features, labels, mode):
        seen = tf1.get_variable("seen", [], initializer=tf1.zeros_initializer())
        count = tf1.assign_add(seen, tf.cast(tf.shape(features["x"])[0], tf.float32))
        return tf.estimator.EstimatorSpec(
            mode,
            predictions={"seen": tf.fill([tf.shape(features["x"])[0]], count)},
            loss=count,
            train_op=tf.group(count, tf1.assign_add(tf1.train.get_global_step(), 1)),
        )

    pair = pair(model_fn)
    data = slices(({"x": _X}, _Y))
    pair.train(data)
    metrics, _ = pair.assert_equal(data, times=3)
    assert metrics["loss"] == np.float32(8 + (4 + 8 + 10) / 3)
    assert refusals == []
