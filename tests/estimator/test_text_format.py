"""Graphs are written as text whatever protobuf is installed."""

import pytest
import tensorflow as tf
from google.protobuf import text_format as protobufs
from tensorflow.python.framework import graph_io

import estimator_runtime
from estimator_runtime.estimator import formats

estimator_runtime.install()

GRAPH = tf.compat.v1.GraphDef(node=[{"name": "a", "op": "NoOp"}])
TEXT = 'node {\n  name: "a"\n  op: "NoOp"\n}\n'


def test_a_graph_is_written_as_text(tmp_path):
    path = tf.io.write_graph(GRAPH, str(tmp_path), "graph.pbtxt")
    assert tf.io.gfile.GFile(path).read() == TEXT


def test_the_patch_takes_what_protobuf_7_refuses(monkeypatch):
    monkeypatch.setattr(graph_io, "text_format", protobufs)
    if formats.lacks_float_format():
        with pytest.raises(TypeError, match="float_format"):
            graph_io.text_format.MessageToString(GRAPH, float_format="")
    formats.drop_float_format(graph_io)
    assert graph_io.text_format.MessageToString(GRAPH, float_format="") == TEXT
    assert graph_io.text_format.MessageToString(GRAPH, as_one_line=True) == (
        'node { name: "a" op: "NoOp" }'
    )
    assert protobufs.MessageToString is not graph_io.text_format.MessageToString
