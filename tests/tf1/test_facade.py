"""What the program gets as `tensorflow`, and `tf.contrib` without the original."""

import importlib
import pickle

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.tf1 import facade
from estimator_runtime.tf1.contrib import original, successors

estimator_runtime.install()


@pytest.fixture(autouse=True)
def contrib(monkeypatch):
    """Return `tf.contrib` where the original is not installed."""
    monkeypatch.setattr(original, "load", lambda views: None)
    made = facade.Contrib("")
    monkeypatch.setattr(facade, "CONTRIB", made)
    return made


@pytest.mark.parametrize("name", successors.SUCCESSORS)
def test_each_name_that_tensorflow_has_leads_to_an_object(contrib, name):
    module, _, attribute = name.partition(".")
    assert getattr(getattr(contrib, module), attribute) is not None


def test_the_longer_spelling_leads_to_the_same_object(contrib):
    spelled = facade.import_module("tensorflow.contrib.tpu.python.tpu.tpu_config")
    assert spelled.__name__ == "tensorflow.contrib.tpu.python.tpu.tpu_config"
    assert spelled.RunConfig is contrib.tpu.RunConfig
    private = facade.import_module("tensorflow.contrib.tpu.python.tpu.tpu_function")
    assert private.get_tpu_context() is not None


@pytest.mark.parametrize(
    "path",
    ["slim", "data.read_batch_features", "tpu.python.tpu.tpu_config.nothing", "keras"],
)
def test_a_name_of_the_original_says_how_to_install_it(contrib, path):
    text = (
        f"tf.contrib.{path} is of the original tf.contrib, which is not installed; "
        "install it with: estimator-runtime tf1 install"
    )
    owner, _, name = path.rpartition(".")
    module = "tensorflow.contrib" + (f".{owner}" if owner else "")
    with pytest.raises(AttributeError) as used:
        getattr(facade.import_module(module), name)
    with pytest.raises(ImportError) as imported:
        facade.import_statement(module, (name,))
    with pytest.raises(ModuleNotFoundError) as whole:
        facade.import_statement(f"{module}.{name}", ())
    assert (str(used.value), str(imported.value)) == (text, text)
    assert str(whole.value) == f"No module named '{module}.{name}': {text}"


def test_a_program_can_go_through_the_names_of_a_module(contrib):
    assert "tpu" in vars(contrib) and "slim" not in vars(contrib)
    assert vars(contrib.util)["make_ndarray"] is tf.make_ndarray
    assert contrib.util.__all__ == [
        "constant_value",
        "make_ndarray",
        "make_tensor_proto",
    ]
    assert vars(facade.TENSORFLOW)["placeholder"] is tf.compat.v1.placeholder
    assert vars(facade.COMPAT)["as_text"] is tf.compat.as_text


def test_other_names_that_are_missing_say_so():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing': neither Ten"):
        _ = facade.TENSORFLOW.Nothing
    with pytest.raises(ImportError, match="tensorflow' has no attribute 'Nothing'"):
        facade.import_statement("tensorflow", ("Nothing",))
    with pytest.raises(ImportError, match=r"No module named 'tensorflow\.examples': "):
        facade.import_statement("tensorflow.examples.tutorials.mnist", ("input_data",))
    with pytest.raises(ImportError, match=r"'Nothing' from 'tensorflow\.python\.ops'"):
        facade.import_statement("tensorflow.python.ops", ("Nothing",))


def test_the_modules_can_be_pickled_by_name(contrib):
    assert pickle.loads(pickle.dumps(facade.TENSORFLOW)) is facade.TENSORFLOW
    assert pickle.loads(pickle.dumps(contrib)) is contrib


def test_tf_lite_is_that_of_version_1_and_its_private_modules_are_real():
    lite = facade.import_module("tensorflow.lite")
    assert hasattr(lite.TFLiteConverter, "from_session")
    private = facade.import_module("tensorflow.lite.python.lite")
    assert private is importlib.import_module("tensorflow.lite.python.lite")


def test_private_layers_and_cells_are_those_of_the_api():
    """Which checks of `isinstance` in tf.contrib and in programs need."""
    core = facade.import_statement("tensorflow.python.layers.core", ("Dense",))
    assert core.Dense is tf.compat.v1.layers.Dense
    ops = facade.import_statement("tensorflow.python.ops", ("rnn_cell_impl",))
    assert ops.rnn_cell_impl.LSTMCell is tf.compat.v1.nn.rnn_cell.LSTMCell
    assert facade.TENSORFLOW.python.ops.rnn_cell.GRUCell is ops.rnn_cell_impl.GRUCell
    everything = facade.import_statement("tensorflow.python.ops.rnn_cell_impl", ("*",))
    assert vars(everything)["LSTMCell"] is tf.compat.v1.nn.rnn_cell.LSTMCell
