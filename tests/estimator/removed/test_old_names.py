"""Programs written for TensorFlow's own names of the frozen package's modules.

By these roads and others at once.
"""

import importlib
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.tf_internals import versions

estimator_runtime.install()

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


def assert_prints(line, program):
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.stdout.strip(), result.returncode) == (line, 0), result.stderr


@pytest.mark.parametrize("name", NAMES)
def test_an_old_name_is_the_frozen_module_itself(name):
    frozen = importlib.import_module(f"tensorflow_estimator.python.estimator.{name}")
    spec = frozen.__spec__
    old = importlib.import_module(f"tensorflow.python.estimator.{name}")
    assert old is frozen
    assert frozen.__spec__ is spec and spec.name == frozen.__name__


@pytest.mark.parametrize("name", TPU_NAMES)
def test_an_old_name_of_tpu_is_the_frozen_module_itself(name):
    frozen = importlib.import_module(
        f"tensorflow_estimator.python.estimator.tpu.{name}"
    )
    spec = frozen.__spec__
    old = importlib.import_module(f"tensorflow.python.tpu.{name}")
    assert old is frozen
    assert getattr(importlib.import_module("tensorflow.python.tpu"), name) is frozen
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


def test_a_module_of_tensorflow_itself_stays_what_it_is():
    from tensorflow.python.tpu import preempted_hook, tpu_function

    assert preempted_hook.__name__ == "tensorflow.python.tpu.preempted_hook"
    assert tpu_function.__name__ == "tensorflow.python.tpu.tpu_function"


def test_the_one_module_that_was_renamed_is_found_by_its_old_name():
    from tensorflow.python.estimator import keras
    from tensorflow_estimator.python.estimator import keras_lib

    assert keras is keras_lib


def test_private_names_pass_through():
    from tensorflow.python.estimator.canned.head import _Head
    from tensorflow.python.estimator.exporter import _SavedModelExporter
    from tensorflow.python.estimator.training import _assert_eval_spec

    assert [each.__module__ for each in (_Head, _SavedModelExporter, _assert_eval_spec)] == [
        "tensorflow_estimator.python.estimator.canned.head",
        "tensorflow_estimator.python.estimator.exporter",
        "tensorflow_estimator.python.estimator.training",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["nothing", "nothing.more", "canned.nothing"])
def test_a_name_that_never_was_is_missing_under_its_own_name(name):
    with pytest.raises(ModuleNotFoundError, match=f"'tensorflow.python.estimator.{name.split('.more')[0]}'"):  # fmt: skip
        importlib.import_module(f"tensorflow.python.estimator.{name}")


@pytest.mark.parametrize(
    "first_line",
    [
        "from tensorflow.python.estimator import run_config",
        "import tensorflow.python.estimator.estimator",
        "from tensorflow.python.estimator.canned import head",
        "from tensorflow.python.distribute import estimator_training",
        "import tensorflow_estimator",
        "from tensorflow_estimator.python.estimator import training",
        "from tensorflow import estimator",
        "from tensorflow.compat.v1 import estimator",
        "import tensorflow.compat.v1 as tf; tf.estimator",
        "import tensorflow.estimator",
        "from tensorflow.keras import layers",
    ],
)
def test_whichever_name_comes_first_there_is_one_class_for_all(first_line):
    program = f"""
import estimator_runtime as er
er.install()
{first_line}
import tensorflow as tf
from tensorflow.python.estimator.run_config import RunConfig
from tensorflow.python.estimator.estimator import Estimator
from tensorflow.python.estimator import training
training._DELAY_SECS_PER_WORKER = 0
from tensorflow_estimator.python.estimator import estimator, training
assert training._DELAY_SECS_PER_WORKER == 0
assert RunConfig is er.RunConfig is tf.estimator.RunConfig
assert Estimator is estimator.Estimator is tf.compat.v1.estimator.Estimator
print("ok")
"""
    assert_prints("ok", program)


@pytest.mark.parametrize(
    "first_line",
    [
        "from tensorflow.python.tpu import tpu_config, tpu_estimator",
        "import tensorflow.python.tpu.tpu_estimator",
        "import tensorflow.python.tpu.util",
        "from tensorflow_estimator.python.estimator.tpu import tpu_estimator",
        "from tensorflow.compat.v1.estimator import tpu",
        "import tensorflow.compat.v1 as tf; tf.estimator.tpu",
    ],
)
def test_whichever_name_comes_first_there_is_one_tpu_estimator(first_line):
    program = f"""
import estimator_runtime as er
er.install()
{first_line}
import tensorflow.compat.v1 as tf
from tensorflow.python.tpu import error_handling, tpu_config, tpu_context, tpu_estimator
from tensorflow_estimator.python.estimator.tpu import tpu_estimator as frozen
assert tpu_estimator is frozen
assert tpu_estimator.TPUEstimator is tf.estimator.tpu.TPUEstimator
assert tpu_config.RunConfig is tf.estimator.tpu.RunConfig
assert frozen.tpu_config is tpu_config and frozen.tpu_context is tpu_context
assert frozen.error_handling is error_handling
tpu_estimator._ONE_GIGABYTE = 7  # what is patched by one name has its effect
assert frozen._ONE_GIGABYTE == 7
print("ok")
"""
    assert_prints("ok", program)


def test_a_package_that_is_missing_is_named_and_not_the_old_name():
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
    assert_prints("six", program)
