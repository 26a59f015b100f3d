"""Libraries for Estimators find the names that TensorFlow or Python moved since.

The libraries themselves are not installed here: a module of the same name uses what
theirs use, in the same way.
"""

import importlib
import sys

import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

TENSORFLOW_GAN = """
import inspect

def optional_kwargs(function):
    found = inspect.getargspec(function)
    return found.args, found.keywords
"""
ADANET = """
def objects(root):
    from tensorflow.python.training.tracking import graph_view

    return graph_view.ObjectGraphView(root).descendants()
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    def make(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return make


def test_tensorflow_gan_can_ask_for_the_arguments_of_a_function(library):
    gan = library("tensorflow_gan", TENSORFLOW_GAN)
    assert gan.optional_kwargs(lambda a, b=1, **more: a) == (["a", "b"], "more")


def test_adanet_finds_the_objects_of_a_checkpoint(library):
    root = tf.train.Checkpoint(weight=tf.Variable(1.0))
    found = library("adanet", ADANET).objects(root)
    assert found[0] is root and any(each is root.weight for each in found)
