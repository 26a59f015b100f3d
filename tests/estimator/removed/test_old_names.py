"""TensorFlow's old names of the frozen package's modules lead to the modules themselves."""

import importlib
import pathlib
import re

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.tf_internals import versions

estimator_runtime.install()

_FROZEN = "tensorflow_estimator.python.estimator"
# The modules that the wheel of TensorFlow 2.15 has under tensorflow/python/estimator.
NAMES = """
canned canned.baseline canned.dnn canned.dnn_linear_combined canned.head canned.linear
canned.metric_keys canned.optimizers canned.parsing_utils canned.prediction_keys
estimator estimator_lib export export.export export.export_lib export.export_output
exporter gc inputs inputs.inputs inputs.numpy_io inputs.pandas_io inputs.queues
inputs.queues.feeding_functions inputs.queues.feeding_queue_runner model_fn run_config
training util
""".split()
# Of those under tensorflow/python/tpu, the ones that are copies of frozen modules.
TPU_NAMES = ("error_handling", "tpu_config", "tpu_context", "tpu_estimator", "util")


def test_an_old_name_is_the_frozen_module_itself():
    names = {
        **{f"estimator.{name}": name for name in NAMES},
        **{f"tpu.{name}": f"tpu.{name}" for name in TPU_NAMES},
        "estimator.keras": "keras_lib",
    }
    for old_name, name in names.items():
        frozen = importlib.import_module(f"{_FROZEN}.{name}")
        spec = frozen.__spec__
        old = importlib.import_module(f"tensorflow.python.{old_name}")
        package, _, last = old_name.rpartition(".")
        parent = importlib.import_module(f"tensorflow.python.{package}")
        assert old is frozen and getattr(parent, last) is frozen, old_name
        assert frozen.__spec__ is spec and spec.name == frozen.__name__


def test_no_other_module_of_tensorflow_2_15_is_a_copy_of_a_frozen_one():
    if versions.parse(tf.__version__) >= (2, 16):
        pytest.skip("newer ones have none")
    folder = pathlib.Path(tf.__file__).with_name("python")
    copies = {
        str(path.relative_to(folder).with_suffix("")).replace("/", ".")
        for path in folder.rglob("*.py")
        if re.search(r"^from tensorflow_estimator\S* import \*", path.read_text(), re.M)
    }
    known = {f"estimator.{name}" for name in [*NAMES, "keras"]}
    known |= {f"tpu.{name}" for name in TPU_NAMES}
    assert copies - known == set()
    assert {f"tpu.{name}" for name in TPU_NAMES} <= copies


@pytest.mark.parametrize("name", ["nothing", "nothing.more", "canned.nothing"])
def test_a_name_that_never_was_is_missing_under_its_own_name(name):
    missing = f"tensorflow.python.estimator.{name.removesuffix('.more')}"
    with pytest.raises(ModuleNotFoundError, match=f"'{missing}'"):
        importlib.import_module(f"tensorflow.python.estimator.{name}")


def test_an_error_names_the_missing_package_and_not_the_old_name(run_python):
    program = """
import estimator_runtime as er
er.install()
import sys
import tensorflow
sys.modules["six"] = None  # what the frozen package imports, as if uninstalled
try:
    from tensorflow.python.estimator import run_config
except ModuleNotFoundError as error:
    print(error.name)
"""
    result = run_python("-W", "ignore", "-c", program)
    assert result.stdout == "six\n", result.stderr
