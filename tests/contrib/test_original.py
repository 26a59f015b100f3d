"""The original `tf.contrib` in TensorFlow 1 mode, against TensorFlow 1.15.5."""

import json
import pathlib

import pytest

RECORDED = pathlib.Path(__file__).parent / "recorded"
# Each folder is imported, what programs spell in full, and what is elsewhere in 1.15.5.
IMPORTS = """
import importlib, json, operator, sys
import tensorflow as tf

failed = []
elsewhere = (
    "framework.arg_scope_func_key layers.adaptive_clipping_fn layers.bucketize "
    "layers.poincare_normalize layers.pool predictor.Predictor "
    "tpu.proto.compilation_result_pb2.CompilationResultProto"
)
for name in [*dir(tf.contrib), *elsewhere.split()]:
    try:
        dir(operator.attrgetter(name)(tf.contrib))
    except Exception as error:
        failed.append(f"{name}: {error!r}")

from tensorflow.contrib.slim.nets import resnet_v2
from tensorflow.contrib.layers.python.layers import utils
from tensorflow.contrib.tpu.python.tpu import tpu_config
from tensorflow.contrib.learn.python.learn.estimators import run_config
from tensorflow.contrib.training.python.training import hparam
from tensorflow.contrib.learn.estimators import model_fn
from tensorflow.contrib.data import Dataset
from tensorflow.contrib.distributions.python.ops.normal import Normal
from tensorflow.contrib.framework.python.ops import audio_ops
from tensorflow.examples.tutorials.mnist import input_data
from tensorflow.python.util import nest
import tensorflow.contrib.slim as slim
import tensorflow.contrib.learn.python.learn.learn_runner as learn_runner
import estimator_runtime as er
from estimator_runtime.contrib import learn

for found, expected in [
    (slim, tf.contrib.slim),
    (learn_runner.run, tf.contrib.learn.learn_runner.run),
    (hparam.HParams, tf.contrib.training.HParams),
    (tpu_config.TPUConfig, tf.contrib.tpu.TPUConfig),
    (tf.contrib.learn.RunConfig, learn.RunConfig),
    (run_config.ClusterConfig, learn.ClusterConfig),
    (tf.contrib.rnn.LSTMCell, tf.nn.rnn_cell.LSTMCell),
    (tf.contrib.rnn.LSTMStateTuple, tf.nn.rnn_cell.LSTMStateTuple),
    (model_fn.ModelFnOps, tf.contrib.learn.ModelFnOps),
    (Dataset, tf.data.Dataset),
    (Normal, tf.distributions.Normal),
    (audio_ops.decode_wav, tf.audio.decode_wav),
    (input_data.read_data_sets, tf.contrib.learn.datasets.mnist.read_data_sets),
    (tf.examples.tutorials.mnist.input_data, input_data),
    (tf.contrib.keras.layers.Dense, tf.keras.layers.Dense),
    (importlib.import_module("tensorflow.contrib.eager").Variable,
     tf.contrib.eager.Variable),
]:
    if found is not expected:
        failed.append(f"{found} is not {expected}")
try:
    tf.contrib.kafka.KafkaDataset(["topic"])
except Exception as error:
    gone = str(error)
real = sys.modules["tensorflow"]
import hook

result = {
    "folders": len(dir(tf.contrib)),
    "failed": failed,
    "gone": gone,
    "unknown": hasattr(tf.contrib, "nothing"),
    "TensorFlow has its names": hasattr(nest, "flatten_up_to"),
    "TensorFlow has contrib": hasattr(real, "contrib"),
    "a program's own module": hook.own,
}
with open(sys.argv[1], "w") as file:
    json.dump(result, file)
"""


# All in one process: each start of TensorFlow takes seconds.
PROGRAM = """
import runpy, sys

for script, result in zip(sys.argv[1::2], sys.argv[2::2]):
    sys.argv[1:] = [result]
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def results(original_contrib, run_script, tmp_path_factory):
    """Return what the scripts have written in TensorFlow 1 mode, by their names."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "imports.py").write_text(IMPORTS)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "hook.py").write_text("own = 1\n")  # a program's own module
    scripts = (folder / "imports.py", RECORDED / "models.py", RECORDED / "ops.py")
    pairs = [(script, folder / f"{script.stem}.json") for script in scripts]
    paths = (path for pair in pairs for path in pair)
    options = {"cwd": folder, "timeout": 280, **original_contrib}
    done = run_script("--tf1", "program.py", *paths, **options)
    assert done.returncode == 0, done.stderr
    return {script.stem: json.loads(path.read_text()) for script, path in pairs}


def expected(name):
    return json.loads((RECORDED / f"{name}.json").read_text())


def test_all_of_it_is_imported_and_changes_nothing_of_tensorflow(results):
    found = results["imports"]
    assert found.pop("folders") >= 90
    assert found == {
        "failed": [],
        "gone": "tf.contrib.kafka's op KafkaDataset is gone from TensorFlow: use the "
        "package tensorflow-io",
        "unknown": False,
        "TensorFlow has its names": True,
        "TensorFlow has contrib": False,
        "a program's own module": 1,
    }


def test_models_have_the_variables_and_values_of_tensorflow_1(results):
    found = results["models"]
    assert found.keys() == expected("models").keys()
    for model, values in expected("models").items():
        assert found[model].keys() == values.keys(), model
        for name, value in values.items():
            said = f"{model}: {name}"
            assert found[model][name] == pytest.approx(value, rel=1e-4, abs=1e-5), said


def test_ops_of_libraries_in_c_have_the_results_of_tensorflow_1(results):
    """Hashes and other integers to the bit."""
    found = results["ops"]
    assert found.keys() == expected("ops").keys()
    for name, parts in expected("ops").items():
        for part, value in zip(found[name], parts, strict=True):
            if value and isinstance(value[0], float):
                value = pytest.approx(value, rel=1e-5, abs=1e-6)
            assert part == value, name
