"""What the program gets as `tensorflow` and `tf.contrib`, and what it is told."""

import importlib
import json
import pickle
import sys
import types

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.tf1 import contrib_names, facade

estimator_runtime.install()

TABLES = types.SimpleNamespace(
    AVAILABLE={
        "data.map_and_batch": "tensorflow.compat.v1:data.experimental.map_and_batch",
        "tpu.RunConfig": "tensorflow.compat.v1:estimator.tpu.RunConfig",
        "text": "xml",
        "text.python.more": "json",
        "gone": "package_that_is_not_installed",
    },
    ALIASES={
        "tpu.python.tpu.tpu_config": "tpu",
        "text.python": "text",
        "data.python.ops": "data",
        "data.python.ops.map_and_batch": "data",
        "text.python.text": "text",
    },
    MISSING={
        "cloud": "it was access to BigQuery; use its client library",
        "data.stats": "it was removed; use tf.profiler",
    },
)
UNKNOWN = (
    "TensorFlow 2 has no tf.contrib, and TensorFlow 1 mode does not have this name; "
    "docs/contrib.md lists those that it has"
)


@pytest.fixture(autouse=True)
def contrib(monkeypatch):
    """Return `tf.contrib` of the small tables above."""
    monkeypatch.setitem(sys.modules, "estimator_runtime.contrib.names", TABLES)
    contrib_names._parents.cache_clear()
    facade._contrib_module.cache_clear()
    made = facade.Contrib("")
    monkeypatch.setattr(facade, "CONTRIB", made)
    yield made
    contrib_names._parents.cache_clear()
    facade._contrib_module.cache_clear()


def test_a_member_is_the_object_that_its_entry_names(contrib):
    old = tf.compat.v1
    assert contrib.data.map_and_batch is old.data.experimental.map_and_batch
    assert contrib.tpu.RunConfig is old.estimator.tpu.RunConfig


def test_the_longer_spelling_leads_to_the_same_object(contrib):
    spelled = facade.import_module("tensorflow.contrib.tpu.python.tpu.tpu_config")
    assert spelled.__name__ == "tensorflow.contrib.tpu.python.tpu.tpu_config"
    assert spelled.RunConfig is contrib.tpu.RunConfig


def test_a_function_in_a_module_of_its_own_name_is_found_as_both(contrib):
    """As `from package import name` and `from package.name import other` do."""
    function = tf.compat.v1.data.experimental.map_and_batch
    package = "tensorflow.contrib.data.python.ops"
    assert (
        facade.import_statement(package, ("map_and_batch",)).map_and_batch is function
    )
    module = facade.import_module(f"{package}.map_and_batch")
    assert module.map_and_batch is function


def test_a_program_can_go_through_the_names_of_a_module(contrib):
    for module, names in [
        (contrib, {"data", "gone", "text", "tpu"}),
        (contrib.tpu, {"RunConfig", "python"}),
        (contrib.gone, set()),  # its package is not installed
    ]:
        assert {name for name in vars(module) if not name.startswith("_")} == names
        for name, value in module.__dict__.items():
            assert getattr(module, name) is value
    assert vars(facade.TENSORFLOW)["placeholder"] is tf.compat.v1.placeholder
    assert vars(facade.COMPAT)["as_text"] is tf.compat.as_text


def test_version_1_by_its_full_name_has_contrib_too(contrib):
    assert facade.import_module("tensorflow.compat.v1").contrib is contrib
    assert facade.import_statement("tensorflow.compat", ("v1",)).v1.contrib is contrib
    found = facade.import_module("tensorflow.compat.v1.train")
    assert found.AdamOptimizer is tf.compat.v1.train.AdamOptimizer


def test_a_whole_module_has_what_its_module_has(contrib):
    import xml.dom.minidom

    assert contrib.text.dom.minidom is xml.dom.minidom
    assert contrib.text.python.text.dom is xml.dom
    # An entry is as good as an alias.
    assert contrib.text.python.more.loads is json.loads


def test_a_star_import_has_the_names_of_the_tables_and_of_whole_modules(contrib):
    assert contrib.data.__all__ == ["map_and_batch", "python"]
    assert {"dumps", "loads"} <= set(contrib.text.python.more.__all__)
    assert set(contrib.text.python.more.__all__) <= {*dir(json)}


def test_a_module_that_is_missing_can_be_imported_for_a_program_that_does_not_use_it():
    assert facade.import_module("tensorflow.contrib.cloud").__name__.endswith("cloud")


@pytest.mark.parametrize(
    "path, why",
    [
        ("cloud.Reader", "it was access to BigQuery; use its client library"),
        ("data.stats", "it was removed; use tf.profiler"),
        ("data.map_and_bach", "did you mean tf.contrib.data.map_and_batch?"),
        ("nothing", UNKNOWN),
        ("data.nothing", UNKNOWN),
        ("text.nothing", UNKNOWN),
        ("tpu.python.tpu.tpu_config.nothing", UNKNOWN),
    ],
)
def test_a_name_that_is_not_there_says_what_became_of_it(contrib, path, why):
    owner, _, name = path.rpartition(".")
    text = f"tf.contrib.{path} is not available; {why}"
    module = "tensorflow.contrib" + (f".{owner}" if owner else "")
    with pytest.raises(AttributeError) as used:
        getattr(facade.import_module(module), name)
    with pytest.raises(ImportError) as imported:
        facade.import_statement(module, (name,))
    assert (str(used.value), str(imported.value)) == (text, text)
    with pytest.raises(ModuleNotFoundError) as whole:
        facade.import_statement(f"{module}.{name}", ())
    assert str(whole.value) == f"No module named '{module}.{name}': {text}"


def test_a_package_that_is_not_installed_is_named(contrib):
    with pytest.raises(ModuleNotFoundError) as raised:
        _ = contrib.gone.conv2d
    assert str(raised.value) == (
        "tf.contrib.gone.conv2d is of the package package_that_is_not_installed, which "
        "is not installed; pip install package-that-is-not-installed"
    )


def test_the_module_has_the_api_of_version_1_and_the_private_packages():
    tensorflow = facade.import_module("tensorflow")
    old = tf.compat.v1
    names = ("Session", "placeholder", "app", "flags", "gfile", "logging", "VERSION")
    assert [getattr(tensorflow, n) for n in names] == [getattr(old, n) for n in names]
    assert tensorflow.__version__ == tf.__version__
    assert tensorflow.python is facade.import_module("tensorflow.python")
    assert facade.import_statement("tensorflow.python.framework", ()) is tensorflow
    ops = facade.import_statement("tensorflow.python.framework.ops", ("Graph",))
    assert ops.Graph is tf.Graph
    assert tensorflow.compat.v2 is tf.compat.v2
    assert {"contrib", "Session", "python"} <= set(dir(tensorflow))


def test_submodules_of_the_api_are_those_of_version_1():
    found = facade.import_statement("tensorflow.train", ("AdamOptimizer",))
    assert found.AdamOptimizer is tf.compat.v1.train.AdamOptimizer
    found = facade.import_statement("tensorflow.estimator", ("DNNClassifier",))
    assert found.DNNClassifier is tf.compat.v1.estimator.DNNClassifier
    assert found.DNNClassifier is not tf.estimator.DNNClassifier
    found = facade.import_statement("tensorflow.keras.layers", ("Dense",))
    assert found.Dense is tf.keras.layers.Dense
    found = facade.import_statement("tensorflow.layers", ("dense",))
    assert found.dense is tf.compat.v1.layers.dense


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
