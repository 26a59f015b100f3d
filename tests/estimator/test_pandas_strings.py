"""Texts in a DataFrame, whose type pandas 3 has changed, reach an Estimator."""

import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()
pandas = pytest.importorskip("pandas", reason="pandas is no dependency")
pandas_input_fn = tf.compat.v1.estimator.inputs.pandas_input_fn

JOBS = ["clerk", "smith", "clerk", "cook"]


def rows(x, y=None, shuffle=False):
    """The one batch that the input function gives, in the order of the ages."""
    input_fn = pandas_input_fn(x, y, batch_size=4, num_epochs=1, shuffle=shuffle)
    with tf.Graph().as_default():
        batch = input_fn()
        with tf.compat.v1.train.MonitoredSession() as session:
            batch = session.run(batch)
    features = batch if y is None else batch[0]
    order = features["age"].argsort()
    return tf.nest.map_structure(lambda each: each[order].tolist(), batch)


@pytest.mark.parametrize("shuffle", [False, True])
def test_texts_are_fed_beside_numbers_as_features_and_target(shuffle):
    frame = pandas.DataFrame({"age": [20.0, 30.0, 40.0, 50.0], "job": JOBS})
    texts = [each.encode() for each in JOBS]
    features = {"age": [20.0, 30.0, 40.0, 50.0], "job": texts}
    assert rows(frame, shuffle=shuffle) == features
    assert rows(frame, frame["job"], shuffle) == (features, texts)
    several = pandas.DataFrame({"first": JOBS, "second": [1, 2, 3, 4]})
    assert rows(frame, several, shuffle) == (
        features,
        {"first": texts, "second": [1, 2, 3, 4]},
    )


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_is_refused_as_it_is_fed(missing):
    frame = pandas.DataFrame({"age": [1, 2], "job": ["clerk", missing]})
    with pytest.raises(tf.errors.InternalError, match="Unsupported object type"):
        rows(frame)


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_estimator_trains_on_texts(shuffle, tmp_path):
    frame = pandas.DataFrame({"job": JOBS})
    job = tf.feature_column.categorical_column_with_vocabulary_list(
        "job", sorted(set(JOBS))
    )
    model = tf.estimator.LinearClassifier([job], str(tmp_path))
    labels = pandas.Series([0, 1, 0, 1])
    model.train(pandas_input_fn(frame, labels, num_epochs=300, shuffle=shuffle))
    asked = pandas_input_fn(frame, num_epochs=1, shuffle=False)
    found = [int(each["class_ids"][0]) for each in model.predict(asked)]
    assert found == [0, 1, 0, 1]
