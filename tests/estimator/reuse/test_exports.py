"""SavedModels that are written from a graph that is kept are those of TensorFlow."""

import os
import pathlib
import re
import shutil
import time

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402
from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402

tf1 = tf.compat.v1
export = tf.estimator.export
_X = np.arange(6, dtype="f").reshape(2, 3)
_TEN_DIGITS = 10**9  # in seconds: exporters delete no folders with shorter names


def serving(width=3):
    """Return a serving_input_receiver_fn."""

    def serving_input_receiver_fn():
        x = tf1.placeholder(tf.float32, [None, width], name="x")
        return export.ServingInputReceiver({"x": x}, {"x": x})

    return serving_input_receiver_fn


def files(folder):
    """Return the files of a SavedModel, without the random names that it holds."""
    found = {}
    for path in sorted(pathlib.Path(tf.compat.as_str_any(folder)).rglob("*")):
        if path.name == "saved_model.pb":
            model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
            # A Saver has a name of its own for the files that it has not finished, and
            # TensorFlow numbers the branches of all graphs of a process.
            text = re.sub("_temp_[0-9a-f]{32}", "_temp", str(model))
            text = re.sub(r"((cond|count)_(true|false))_\d+", r"\1", text)
            found[path.name] = sorted(text.splitlines())
        elif path.is_file():
            found[path.name] = path.read_bytes()
    return found


def assert_same_exports(pair, folder, receiver_fn, **kwargs):
    stock = pair.stock.export_saved_model(str(folder / "s"), receiver_fn, **kwargs)
    kept = pair.kept.export_saved_model(str(folder / "k"), receiver_fn, **kwargs)
    assert files(kept) == files(stock)
    assert "variables.index" in files(kept)
    return tf.compat.as_str_any(kept)


def test_exports_of_one_graph_after_another(pair, linear, rows, tmp_path, refusals):
    pair = pair(linear)
    for _ in range(3):
        pair.train(rows())
        kept = assert_same_exports(pair, tmp_path / "export", serving())
    loaded = tf.saved_model.load(kept).signatures["serving_default"]
    expected = [row["predicted"] for row in pair.stock.predict(lambda: slices(_X))]
    assert loaded(x=tf.constant(_X))["predicted"].numpy().tolist() == expected
    assert pair.calls == ["infer"]
    assert refusals == []


def slices(x):
    return tf.data.Dataset.from_tensors({"x": x})


def test_other_inputs_are_another_graph(pair, linear, rows, tmp_path):
    pair = pair(linear)
    pair.train(rows())
    for width in (3, 4, 3, None):
        assert_same_exports(pair, tmp_path / "export", serving(width))
    assert pair.calls == ["infer"] * 3


def test_all_modes_of_an_export(pair, linear, rows, tmp_path):
    supervised = tf.estimator.experimental.build_raw_supervised_input_receiver_fn(
        {"x": tf.zeros([1, 3])}, {"y": tf.zeros([1])}
    )
    receivers = {"train": supervised, "eval": supervised, "infer": serving()}
    pair = pair(linear)
    for _ in range(2):
        pair.train(rows())
        stock, kept = (
            estimator.experimental_export_all_saved_models(
                str(tmp_path / f"of_{name}"), receivers
            )
            for name, estimator in (("stock", pair.stock), ("kept", pair.kept))
        )
        assert files(kept) == files(stock)
    assert pair.calls == ["train", "eval", "infer"]


def test_a_checkpoint_that_is_named_is_exported(pair, linear, rows, tmp_path):
    pair = pair(linear)
    pair.train(rows())
    first = pair.stock.latest_checkpoint()
    pair.train(rows())
    for path in (None, first, None):
        assert_same_exports(
            pair, tmp_path / "export", serving(), checkpoint_path=path, as_text=False
        )
    assert pair.calls == ["infer"]


@pytest.mark.parametrize("reuse_graphs", [True, "auto"])
def test_parsed_examples_and_files_of_a_vocabulary(reuse_graphs, tmp_path, monkeypatch):
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("a\nb\n")
    words = tf.feature_column.categorical_column_with_vocabulary_file(
        "w", str(vocabulary), vocabulary_size=2
    )
    columns = [tf.feature_column.embedding_column(words, 2)]
    spec = tf.feature_column.make_parse_example_spec(columns)
    parsing = export.build_parsing_serving_input_receiver_fn(spec)

    def data():
        x = {"w": np.array(["a", "b", "c"])}
        return tf.data.Dataset.from_tensor_slices((x, [0, 1, 0])).batch(2)

    def estimator(reuse_graphs):
        config = er.RunConfig(tmp_path / "model", reuse_graphs=reuse_graphs)
        return tf.estimator.DNNClassifier([2], columns, config=config)

    stock, kept = estimator(False), estimator(reuse_graphs)
    calls, call = [], tf1.estimator.Estimator._call_model_fn

    def counting(self, features, labels, mode, config):
        if self is kept:
            calls.append(mode)
        return call(self, features, labels, mode, config)

    monkeypatch.setattr(tf1.estimator.Estimator, "_call_model_fn", counting)
    for _ in range(2):
        stock.train(data)
        a = stock.export_saved_model(str(tmp_path / "s"), parsing)
        b = kept.export_saved_model(str(tmp_path / "k"), parsing)
        assert files(a) == files(b)
        assert files(b)["vocabulary.txt"] == b"a\nb\n"
    assert calls == ["infer"]


def test_inputs_that_are_no_tensors_are_exported_as_ever(
    pair, linear, rows, tmp_path, refusals
):
    def receiver_fn():
        x = tf1.placeholder(tf.float32, [None, 3], name="x")
        variable = tf1.get_local_variable("local", [3])
        features = {"x": x, "more": variable}
        made = export.ServingInputReceiver({"x": x}, {"x": x})
        return made._replace(features=features)

    def model_fn(features, labels, mode):
        return linear({"x": features["x"]}, labels, mode)

    pair = pair(model_fn)
    pair.train(rows())
    for _ in range(2):
        assert_same_exports(pair, tmp_path / "export", receiver_fn)
    assert pair.calls == ["infer"] * 2
    [line] = refusals
    assert line.startswith(
        "export builds a graph of its own, because input_receiver_fn returns a "
    )


def test_exports_within_a_second_take_the_next_ones_without_waiting_for_them(
    pair, linear, rows, tmp_path, monkeypatch
):
    pair = pair(linear)
    pair.train(rows())
    slept = []
    monkeypatch.setattr(time, "time", lambda: 1000.5 + sum(slept))
    monkeypatch.setattr(time, "sleep", slept.append)
    base = tmp_path / "export"

    def export(estimator):
        return int(os.path.basename(estimator.export_saved_model(str(base), serving())))

    # Of another clock, of a killed export, and no exports at all.
    for name in ("1007", "temp-1000", "notes", "\u00b2"):
        (base / name).mkdir(parents=True)
    assert [export(pair.kept), export(pair.stock)] == [1001, 1002]
    for name in ("1001", "1002"):  # moved to a serving folder
        shutil.rmtree(base / name)
    assert [export(pair.kept) for _ in range(3)] == [1003, 1004, 1005]
    assert slept == []


def test_exports_of_which_one_is_kept_have_growing_names(
    pair, linear, rows, tmp_path, monkeypatch
):
    pair = pair(linear)
    pair.train(rows())
    slept = []
    monkeypatch.setattr(time, "time", lambda: _TEN_DIGITS + 0.5 + sum(slept))
    monkeypatch.setattr(time, "sleep", slept.append)
    exporter = tf.estimator.LatestExporter("latest", serving(), exports_to_keep=1)
    base = str(tmp_path / "export")
    found = [exporter.export(pair.kept, base, None, None, False) for _ in range(8)]
    names = [int(os.path.basename(each)) - _TEN_DIGITS for each in found]
    assert names == list(range(8))
    assert os.listdir(base) == [str(_TEN_DIGITS + 7)]
    assert slept == [0.5, 1.0]


def test_by_default_an_exported_training_has_the_optimizers_present_rate(
    rows, tmp_path
):
    rate = [0.0]
    optimizer = tf1.train.GradientDescentOptimizer(lambda: rate[0])

    def estimator(**options):
        return tf1.estimator.LinearRegressor(
            [tf.feature_column.numeric_column("x", [3])],
            optimizer=optimizer,
            config=er.RunConfig(tmp_path / "model", **options),
        )

    receiver_fn = tf.estimator.experimental.build_raw_supervised_input_receiver_fn(
        {"x": tf.zeros([1, 3])}, tf.zeros([1, 1])
    )

    def exported(each, name):
        return files(
            each.experimental_export_all_saved_models(
                str(tmp_path / name), {tf.estimator.ModeKeys.TRAIN: receiver_fn}
            )
        )

    stock, kept = estimator(reuse_graphs=False), estimator()
    stock.train(rows(), steps=1)
    found = []
    for rate[0] in (0.25, 0.75):
        found.append(exported(kept, "kept"))
        assert found[-1] == exported(stock, "stock")
    assert found[0]["saved_model.pb"] != found[1]["saved_model.pb"]
