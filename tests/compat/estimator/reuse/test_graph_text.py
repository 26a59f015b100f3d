"""The file of the graph is the one that TensorFlow would write."""

import os
import pathlib

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework import graph_io
from tensorflow.python.training import training_util

import estimator_runtime as er

er.install()

tf1 = tf.compat.v1


@pytest.fixture
def printed(monkeypatch):
    """Record the messages that are printed."""
    found = []
    original = graph_io.text_format.MessageToString

    def print_(message, *args, **kwargs):
        found.append(message)
        return original(message, *args, **kwargs)

    monkeypatch.setattr(graph_io.text_format, "MessageToString", print_)
    return found


def graph_of(text):
    with tf.Graph().as_default() as graph:
        tf.constant(text)
    return graph.as_graph_def(add_shapes=True)


def write(folder, text):
    path = training_util.write_graph(graph_of(text), str(folder), "graph.pbtxt")
    return pathlib.Path(path).read_text()


def stock(graph, folder):
    """Return what TensorFlow's own function writes."""
    return pathlib.Path(
        graph_io.write_graph(graph, str(folder / "stock"), "graph.pbtxt")
    ).read_text()


def shown(text):
    return text_format.MessageToString(graph_of(text))


def test_the_same_graph_is_printed_once(tmp_path, printed):
    assert write(tmp_path, "once") == shown("once")
    printed.clear()
    assert write(tmp_path, "once") == shown("once")
    nodes = [node.name for message in printed for node in message.node]
    assert nodes == ["Const"]  # by the test
    assert os.listdir(tmp_path) == ["graph.pbtxt"]


def test_another_graph_replaces_the_file(tmp_path):
    texts = [write(tmp_path, name) for name in ("one", "two", "one")]
    assert texts == [shown("one"), shown("two"), shown("one")]


def test_a_file_that_somebody_has_changed_is_written_again(tmp_path):
    write(tmp_path, "changed")
    path = tmp_path / "graph.pbtxt"
    times = path.stat()
    path.write_text(path.read_text().replace("changed", "mangled"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert write(tmp_path, "changed") == shown("changed")


def test_a_file_that_somebody_has_deleted_is_written_again(tmp_path):
    write(tmp_path, "deleted")
    (tmp_path / "graph.pbtxt").unlink()
    assert write(tmp_path, "deleted") == shown("deleted")


def test_the_time_of_the_file_is_that_of_the_last_write(tmp_path):
    write(tmp_path, "time")
    os.utime(tmp_path / "graph.pbtxt", (1, 1))
    write(tmp_path, "time")
    assert (tmp_path / "graph.pbtxt").stat().st_mtime > 1


def test_each_folder_gets_its_file(tmp_path):
    texts = [write(tmp_path / name, "folders") for name in ("one", "two")]
    assert texts == [shown("folders")] * 2


def test_a_second_training_does_not_print_the_graph_of_the_first(tmp_path, printed):
    def model_fn(features, labels, mode):
        weight = tf1.get_variable("weight", [])
        step = tf1.train.get_global_step()
        loss = tf.square(weight - tf.reduce_mean(features))
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, step)
        )

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    counts = []
    for _ in range(3):
        printed.clear()
        estimator.train(lambda: tf.data.Dataset.from_tensors(1.0).repeat(), steps=2)
        counts.append(sum(len(message.node) for message in printed))
        text = (tmp_path / "graph.pbtxt").read_text()
        graph = text_format.Parse(text, tf1.GraphDef())
        assert text == stock(graph, tmp_path)
    # The functions of a tf.cond have new names each time.
    assert counts[0] == len(graph.node)
    assert counts[1] == counts[2] == len(_with_functions(graph))


def _with_functions(graph):
    return [n for n in graph.node if any(a.HasField("func") for a in n.attr.values())]


def test_all_fields_are_written(tmp_path):
    @tf.function
    def double(x):
        return x * 2

    with tf.Graph().as_default() as graph:
        double(tf.constant([0.1, 0.2]))
        for number in (0.1, 1 / 3, 1e30, 2.0, float("nan"), float("inf")):
            tf.constant(number)  # printed as a number, not as bytes
            tf.constant(number, tf.float64)
        tf.constant('\u00e4"\\\n')
        tf1.placeholder(tf.float32, [None, 3])
    graph_def = graph.as_graph_def(add_shapes=True)
    graph_def.version = 3
    assert len(graph_def.ListFields()) > 3
    for _ in range(2):
        path = training_util.write_graph(graph_def, str(tmp_path), "graph.pbtxt")
        assert pathlib.Path(path).read_text() == stock(graph_def, tmp_path)
