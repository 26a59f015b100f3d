"""Predictors: their values are those of `predict`, whoever calls, and after a refresh."""

import concurrent.futures
import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib import predictor
from estimator_runtime.errors import (
    CheckpointError,
    ConfigError,
    ConfigKeyError,
    PredictorClosedError,
    PredictorInputError,
)

estimator_runtime.install()
tf1 = tf.compat.v1

_COLUMNS = [
    tf.feature_column.numeric_column("x", shape=[2]),
    tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_hash_bucket("word", 10), 3
    ),
]
_ROWS = {
    "x": np.array([[0.25, -1.0], [3.0, 0.5], [-0.125, 7.0]], np.float32),
    "word": np.array([b"one", b"two", b"three"], object),
}
_LABELS = np.array([0, 1, 1])
_RAW = tf.estimator.export.ServingInputReceiver


def _batches(labels=_LABELS):
    return lambda: tf.data.Dataset.from_tensors((_ROWS, labels)).repeat()


def _rows():
    return tf.data.Dataset.from_tensors(_ROWS)


def _raw_receiver():
    features = {
        "x": tf1.placeholder(tf.float32, [None, 2]),
        "word": tf1.placeholder(tf.string, [None]),
    }
    return _RAW(features, features)


_example_receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(
    tf.feature_column.make_parse_example_spec(_COLUMNS)
)


def _examples():
    def example(x, word):
        feature = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=x)),
            "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[word])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        return example.SerializeToString()

    return np.array(list(map(example, _ROWS["x"], _ROWS["word"])), object)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    estimator = tf.estimator.DNNClassifier([4], _COLUMNS, str(folder))
    return estimator.train(_batches(), steps=3)


@pytest.fixture(scope="module")
def regressor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regressor")
    estimator = tf.estimator.DNNRegressor([4], _COLUMNS, str(folder))
    return estimator.train(_batches(_LABELS.astype(np.float32)), steps=3)


@pytest.fixture(scope="module")
def export(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    return classifier.export_saved_model(str(folder), _example_receiver)


def _predicted(estimator, input_fn=_rows):
    """Return what `predict` says of one batch, by key."""
    [batch] = estimator.predict(input_fn, yield_single_examples=False)
    return batch


def _raw_outputs(estimator, receiver_fn, output_key, feeds):
    """Return an export output, computed by a plain session of TensorFlow's."""
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        tf1.train.create_global_step()
        receiver = receiver_fn()
        spec = estimator.model_fn(receiver.features, None, "infer", estimator.config)
        signature = spec.export_outputs[output_key].as_signature_def(
            receiver.receiver_tensors
        )
        tf1.train.Saver().restore(session, estimator.latest_checkpoint())
        session.run(tf1.tables_initializer())
        find = graph.get_tensor_by_name
        return session.run(
            {key: find(info.name) for key, info in signature.outputs.items()},
            {find(info.name): feeds[key] for key, info in signature.inputs.items()},
        )


def _assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key].dtype == value.dtype
        np.testing.assert_array_equal(found[key], value, key, strict=True)


def test_serialized_examples_give_what_predict_gives(classifier):
    with predictor.from_estimator(classifier, _example_receiver, "predict") as predict:
        _assert_equal(predict({"examples": _examples()}), _predicted(classifier))


def test_the_default_output_of_a_classifier_has_classes_and_scores(classifier):
    feeds = {"inputs": _examples()}
    with predictor.from_estimator(classifier, _example_receiver) as predict:
        found = predict(feeds)
    _assert_equal(
        found,
        _raw_outputs(classifier, _example_receiver, "serving_default", feeds),
    )
    np.testing.assert_array_equal(
        found["scores"], _predicted(classifier)["probabilities"]
    )


@pytest.mark.parametrize("key", ["serving_default", "regression", "predict"])
def test_each_output_of_a_regressor_is_that_of_a_plain_session(regressor, key):
    feeds = {"examples" if key == "predict" else "inputs": _examples()}
    with predictor.from_estimator(regressor, _example_receiver, key) as predict:
        found = predict(feeds)
    _assert_equal(found, _raw_outputs(regressor, _example_receiver, key, feeds))
    [values] = found.values()
    np.testing.assert_array_equal(values, _predicted(regressor)["predictions"])


def test_a_saved_model_gives_what_its_estimator_gives(classifier, export):
    with predictor.from_saved_model(export, "predict") as predict:
        _assert_equal(predict({"examples": _examples()}), _predicted(classifier))
        assert predict.refresh() is False
    with predictor.from_saved_model(export) as predict:
        assert list(predict.feed_tensors) == ["inputs"]
        assert sorted(predict.fetch_tensors) == ["classes", "scores"]


def test_a_signature_and_tensor_names_of_ones_own_can_be_given(classifier, export):
    with predictor.from_saved_model(export, "predict") as predict:
        names = {key: each.name for key, each in predict.fetch_tensors.items()}
        [input_name] = [each.name for each in predict.feed_tensors.values()]
        with predict.graph.as_default():
            signature = tf1.saved_model.predict_signature_def(
                predict.feed_tensors, {"odds": predict.fetch_tensors["logits"]}
            )
    logits = _predicted(classifier)["logits"]
    with predictor.from_saved_model(export, signature_def=signature) as predict:
        _assert_equal(predict({"examples": _examples()}), {"odds": logits})
    with predictor.from_saved_model(
        export, input_names={"in": input_name}, output_names={"out": names["logits"]}
    ) as predict:
        _assert_equal(predict({"in": _examples()}), {"out": logits})


def test_a_saved_model_of_tensorflow_2_can_be_called(tmp_path):
    class Doubled(tf.Module):
        def __init__(self):
            super().__init__()
            self.factor = tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def __call__(self, x):
            return {"y": self.factor * x}

    module = Doubled()
    tf.saved_model.save(module, str(tmp_path), module.__call__)
    with predictor.from_saved_model(tmp_path, tags="serve") as predict:
        _assert_equal(predict({"x": [1.5]}), {"y": np.array([3.0], np.float32)})


def _train_counter(folder, steps):
    """Train a model whose one output is x + 10 * step, with an average beside it."""

    def model_fn(features, labels, mode):
        step = tf1.train.get_global_step()
        count = tf1.get_variable("count", [], initializer=tf1.zeros_initializer())
        scaffold, train_op = None, None
        if mode == "train":
            shadow = tf1.get_variable("shadow", [], initializer=tf1.zeros_initializer())
            train_op = tf.group(
                step.assign_add(1), count.assign_add(1.0), shadow.assign_add(10.0)
            )
        else:
            # As with averages of weights, what it predicts with is saved elsewhere.
            saver = tf1.train.Saver({"shadow": count, "global_step": step})
            scaffold = tf1.train.Scaffold(saver=saver)
        output = features["x"] + count
        return tf.estimator.EstimatorSpec(
            mode,
            predictions={"y": output, "count": count.read_value()},
            loss=tf.constant(0.0),
            train_op=train_op,
            scaffold=scaffold,
        )

    config = tf.estimator.RunConfig(str(folder), keep_checkpoint_max=2)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(
        lambda: tf.data.Dataset.from_tensors({"x": [0.0]}).repeat(), steps=steps
    )
    return estimator


def _x_receiver():
    features = {"x": tf1.placeholder(tf.float32, [None])}
    return _RAW(features, features)


def test_the_scaffold_of_the_model_restores_its_values(tmp_path):
    estimator = _train_counter(tmp_path, 3)
    with predictor.from_estimator(estimator, _x_receiver) as predict:
        found = predict({"x": [1.0, 2.0]})
    _assert_equal(
        found,
        {"y": np.array([31.0, 32.0], np.float32), "count": np.float32(30)},
    )


def test_refresh_takes_over_a_newer_checkpoint(tmp_path):
    estimator = _train_counter(tmp_path, 1)
    with predictor.from_estimator(estimator, _x_receiver) as predict:
        session = predict.session
        assert predict.refresh() is False
        assert predict.session is session
        _train_counter(tmp_path, 2)
        assert predict({"x": [1.0]})["y"] == [11.0]
        assert predict.refresh() is True
        assert predict({"x": [1.0]})["y"] == [31.0]
        assert predict.refresh() is False
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(predict.fetch_tensors["count"])


def test_refresh_notices_a_training_that_started_over(tmp_path):
    estimator = _train_counter(tmp_path, 2)
    with predictor.from_estimator(estimator, _x_receiver) as predict:
        shutil.rmtree(tmp_path)
        with pytest.raises(CheckpointError, match="has no checkpoint to predict with"):
            predict.refresh()
        assert predict({"x": [1.0]})["y"] == [21.0]
        _train_counter(tmp_path, 2)
        assert predict.refresh() is True
        assert predict.refresh() is False


def test_refresh_notices_a_file_of_the_same_time_and_size(tmp_path):
    estimator = _train_counter(tmp_path, 2)
    index = f"{estimator.latest_checkpoint()}.index"
    with predictor.from_estimator(estimator, _x_receiver) as predict:
        shutil.copy2(index, tmp_path / "copy")
        os.replace(tmp_path / "copy", index)
        assert predict.refresh() is True
        assert predict.refresh() is False


def test_threads_call_without_a_gap_while_checkpoints_are_taken_over(tmp_path):
    estimator = _train_counter(tmp_path, 1)
    is_over = threading.Event()
    with predictor.from_estimator(estimator, _x_receiver) as predict:

        def call(x):
            counts = []
            while not is_over.is_set():
                found = predict({"x": [x]})
                assert found["y"] == [x + found["count"]]
                counts.append(float(found["count"]))
            return counts

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(call, float(x)) for x in range(4)]
            for _ in range(3):
                _train_counter(tmp_path, 1)
                # Two at once take it over once.
                refreshes = [threading.Thread(target=predict.refresh) for _ in "ab"]
                for thread in refreshes:
                    thread.start()
                for thread in refreshes:
                    thread.join(60)
            is_over.set()
            for each in calls:
                counts = each.result(60)
                assert counts == sorted(counts)
                assert set(counts) <= {10.0, 20.0, 30.0, 40.0}
        assert predict({"x": [0.0]})["y"] == [40.0]


@pytest.fixture
def spec_predictor(tmp_path):
    """Return a function that makes the predictor of a model_fn and a receiver."""

    def spec_predictor(predictions_of, receiver_fn):
        def model_fn(features, labels, mode):
            weight = tf1.get_variable("weight", initializer=[1.0, 2.0])
            if mode == "infer":
                predictions = predictions_of(features, weight)
                return tf.estimator.EstimatorSpec(mode, predictions=predictions)
            step = tf1.train.get_global_step()
            return tf.estimator.EstimatorSpec(
                mode, loss=tf.constant(0.0), train_op=step.assign_add(1)
            )

        estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
        estimator.train(lambda: tf.data.Dataset.from_tensors({"x": [0.0]}), steps=1)
        return predictor.from_estimator(estimator, receiver_fn)

    return spec_predictor


def test_inputs_with_a_default_or_without_an_effect_can_be_left_out(spec_predictor):
    def receiver():
        features = {
            "x": tf1.placeholder(tf.float32, [None]),
            "scale": tf1.placeholder_with_default(10.0, []),
            "unused": tf1.placeholder(tf.string, [None]),
        }
        return _RAW(features, features)

    with spec_predictor(lambda f, _: f["scale"] * f["x"], receiver) as predict:
        for optional in ({}, {"scale": None, "unused": None}, {"unused": ["a"]}):
            assert predict({"x": [1.5], **optional})["output"] == [15.0]
        assert predict({"x": [1.5], "scale": 2, "unused": ["a"]})["output"] == [3.0]
        with pytest.raises(PredictorInputError) as caught:
            predict({"scale": 1.0, "x": None})
    assert str(caught.value) == (
        "input_dict lacks 'x'; the inputs of this predictor: 'scale', 'unused', 'x'"
    )


def test_an_input_that_only_a_control_dependency_needs_is_needed(spec_predictor):
    def checked(features, _):
        with tf.control_dependencies([tf.group(tf1.assert_positive(features["x"]))]):
            return tf.identity(features["y"])

    def receiver():
        features = {key: tf1.placeholder(tf.float32, [None]) for key in "xy"}
        return _RAW(features, features)

    with spec_predictor(checked, receiver) as predict:
        assert predict({"x": [1.0], "y": [5.0]})["output"] == [5.0]
        with pytest.raises(PredictorInputError, match=r"^input_dict lacks 'x'; "):
            predict({"y": [5.0]})
        with pytest.raises(tf.errors.InvalidArgumentError):
            predict({"x": [-1.0], "y": [5.0]})


def test_sparse_inputs_are_given_as_values(spec_predictor):
    def receiver():
        features = {"x": tf1.sparse_placeholder(tf.float32, [None, 3])}
        return _RAW(features, features)

    def dense(features, _):
        return tf.sparse.to_dense(features["x"])

    with spec_predictor(dense, receiver) as predict:
        value = tf1.SparseTensorValue([[0, 2]], np.array([4.0], np.float32), [1, 3])
        np.testing.assert_array_equal(predict({"x": value})["output"], [[0, 0, 4]])
        with pytest.raises(PredictorInputError, match=r"^input_dict lacks 'x'; "):
            predict({})


def test_outputs_belong_to_the_caller(spec_predictor):
    def predictions(features, weight):
        return {"w": weight.read_value(), "x": tf.identity(features["x"])}

    x = np.array([1.0, 2.0], np.float32)
    with spec_predictor(predictions, _x_receiver) as predict:
        for _ in range(2):
            found = predict({"x": x})
            np.testing.assert_array_equal(found["w"], [1.0, 2.0])
            np.testing.assert_array_equal(found["x"], [1.0, 2.0])
            found["w"][:] = found["x"][:] = -1.0
    np.testing.assert_array_equal(x, [1.0, 2.0])


def test_arrays_of_any_layout_and_lists_are_inputs(classifier):
    with predictor.from_estimator(classifier, _raw_receiver, "predict") as predict:
        expected = predict(_ROWS)
        columns_first = np.asfortranarray(_ROWS["x"])
        texts = np.array(["one", "two", "three"])
        _assert_equal(predict({"x": columns_first, "word": texts}), expected)
        as_lists = {"x": _ROWS["x"].tolist(), "word": ["one", "two", "three"]}
        _assert_equal(predict(as_lists), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"age": [1]},
            "input_dict has 'age', which is not an input of this predictor; its inputs: "
            "'word', 'x'",
        ),
        (
            {"x": [[1.0, 2.0, 3.0]]},
            "input_dict['x'] has the shape (1, 3), but this input of the predictor has "
            "the shape (None, 2)",
        ),
        (
            {"x": [["one", "two"]]},
            "input_dict['x'] is [['one', 'two']], but this input of the predictor has "
            "the type float32: could not convert string to float: 'one'",
        ),
    ],
)
def test_wrong_inputs_are_named(classifier, changes, said):
    with predictor.from_estimator(classifier, _raw_receiver, "predict") as predict:
        with pytest.raises(PredictorInputError) as caught:
            predict({**_ROWS, **changes})
        assert str(caught.value) == said
        assert isinstance(caught.value, ValueError)
        predict(_ROWS)


def test_without_a_checkpoint_there_is_no_predictor(tmp_path):
    estimator = tf.estimator.DNNClassifier([4], _COLUMNS, str(tmp_path))

    def receiver():
        raise AssertionError("not called")

    with pytest.raises(CheckpointError) as caught:
        predictor.from_estimator(estimator, receiver)
    assert str(caught.value) == (
        f"{tmp_path} has no checkpoint to predict with; train the Estimator first, or "
        "give it the model_dir of its training"
    )


def test_an_unknown_output_is_named_with_those_there_are(classifier):
    with pytest.raises(ConfigKeyError) as caught:
        predictor.from_estimator(classifier, _example_receiver, "predictions")
    assert str(caught.value) == (
        "from_estimator: output_key is 'predictions', but the export_outputs of the "
        "model_fn are 'classification', 'predict', 'regression', 'serving_default'"
    )
    assert isinstance(caught.value, KeyError)


def test_features_that_do_not_go_with_a_classification_are_named(classifier):
    with pytest.raises(ConfigError) as caught:
        predictor.from_estimator(classifier, _raw_receiver)
    assert str(caught.value).startswith(
        "from_estimator: output_key 'serving_default' does not go with the inputs "
        "'word', 'x' of serving_input_receiver_fn: "
    )
    assert 'An output_key such as "predict" takes any inputs' in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"signature_def_key": "serve"},
            "signature_def_key is 'serve', but the signatures of {} are "
            "'classification', 'predict', 'regression', 'serving_default'",
        ),
        (
            {"input_names": {"x": "x:0"}},
            "give both input_names and output_names, or neither",
        ),
        (
            {
                "signature_def_key": "predict",
                "input_names": {"x": "x:0"},
                "output_names": {"y": "y:0"},
            },
            "give only one of signature_def_key, signature_def, and input_names with "
            "output_names",
        ),
        (
            {"input_names": {"x": "no_such:0"}, "output_names": {"y": "y:0"}},
            "input_names['x'] is 'no_such:0', which is no tensor of the SavedModel; "
            'give a name such as "x:0": ',
        ),
    ],
)
def test_wrong_signatures_are_named(export, arguments, said):
    with pytest.raises(ConfigError) as caught:
        predictor.from_saved_model(export, **arguments)
    folder = export.decode()
    assert str(caught.value).startswith(f"from_saved_model: {said}".format(folder))


def test_a_closed_predictor_says_so(classifier):
    with predictor.from_estimator(classifier, _raw_receiver, "predict") as predict:
        session = predict.session
    predict.close()
    for use in (
        lambda: predict(_ROWS),
        lambda: predict.session,
        predict.refresh,
        predict.__enter__,
    ):
        with pytest.raises(PredictorClosedError) as caught:
            use()
        assert str(caught.value).startswith("this predictor is closed; make another")
        assert isinstance(caught.value, RuntimeError)
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(predict.fetch_tensors)


@pytest.mark.parametrize("is_first_closed", [False, True])
def test_a_call_that_runs_while_it_is_closed_ends_well(spec_predictor, is_first_closed):
    has_begun, may_end = threading.Event(), threading.Event()

    def wait(x):
        has_begun.set()
        assert may_end.wait(60)
        return x

    def waited(features, _):
        return tf1.numpy_function(wait, [features["x"]], tf.float32)

    predict = spec_predictor(waited, _x_receiver)
    session = predict.session
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(predict, {"x": [5.0]})
        assert has_begun.wait(60)
        if is_first_closed:
            predict.close()
            with pytest.raises(PredictorClosedError):
                predict({"x": [6.0]})
        may_end.set()
        np.testing.assert_array_equal(call.result(60)["output"], [5.0])
    predict.close()
    assert session._closed


@pytest.mark.parametrize("number", [-1, 256])
def test_a_number_that_its_type_cannot_hold_is_refused(spec_predictor, number):
    def receiver():
        x = tf1.placeholder(tf.uint8, [])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})

    with spec_predictor(lambda features, _: features, receiver) as predict:
        assert predict({"x": 255})["x"] == 255
        with pytest.raises(PredictorInputError, match=f"is {number}, but.* uint8"):
            predict({"x": number})
