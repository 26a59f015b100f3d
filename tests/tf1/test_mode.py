"""TensorFlow 1 mode in whole programs, and in the processes that they start."""

import json

import pytest

import estimator_runtime
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.errors import ConfigError

IMPORTS = """
import tensorflow as tf
import tensorflow
from tensorflow import contrib, flags, keras, layers
from tensorflow.contrib import summary
import tensorflow.contrib.data as contrib_data
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator
import tensorflow.compat.v1 as v1
from tensorflow.python.framework import ops
import tensorflow.python.ops.math_ops as math_ops
from tensorflow.python.estimator import model_fn
from tensorflow.core.framework import summary_pb2
from tensorflow.estimator import DNNClassifier
from tensorflow.keras.layers import Dense
import tensorflow.keras.backend as K
from tensorflow.python.layers import core as layers_core
import estimator_runtime as er

every = {}
exec("from tensorflow import *", every)

for found, expected in [
    (tensorflow, tf),
    (contrib, tf.contrib),
    (flags, tf.app.flags),
    (flags, tf.flags),
    (layers.dense, tf.layers.dense),
    (every["placeholder"], tf.placeholder),
    (tf.Session, v1.Session),
    (keras.layers.Dense, Dense),
    (K.get_session, tf.keras.backend.get_session),
    (contrib_data.map_and_batch, tf.data.experimental.map_and_batch),
    (tpu_config.TPUConfig, tf.contrib.tpu.TPUConfig),
    (tpu_estimator.TPUEstimator, tf.estimator.tpu.TPUEstimator),
    (summary.scalar, tf.contrib.summary.scalar),
    (model_fn.EstimatorSpec, tf.estimator.EstimatorSpec),
    (DNNClassifier, v1.estimator.DNNClassifier),
    (tf.estimator.RunConfig, er.RunConfig),
    (ops.Tensor, tf.Tensor),
    (math_ops.matmul, tf.matmul),
    (summary_pb2.Summary, tf.Summary),
    (tf.VERSION, tf.__version__),
]:
    assert found is expected, (found, expected)
assert layers_core.Dense and tf.GIT_VERSION and tf.gfile.Exists and tf.logging.INFO and tf.app.run
# The behaviour of version 1.
assert not tf.executing_eagerly()
assert tf.zeros([2, 3]).shape[0] == tf.Dimension(2)
assert isinstance(tf.zeros([2, 3]).shape[0], tf.Dimension)
assert tf.data.Dataset.range(3).make_one_shot_iterator()
assert len({tf.constant(1), tf.constant(1)}) == 2
print("done")
"""


def test_each_form_of_import_gives_the_api_of_version_1(tmp_path, run_tf1):
    (tmp_path / "train.py").write_text(IMPORTS)
    done = run_tf1("train.py")
    assert done.stdout == "done\n", done.stderr


MOVED = """
import collections, imp, inspect, json, time
from collections import Iterable, Mapping
import numpy as np

module = imp.load_source("settings", "settings.py")
names = [np.float, np.int, np.object, np.str, np.complex]
print(json.dumps({
    "types": [each.__name__ for each in names],
    "others": [bool(np.bool(1)), np.Inf, np.asscalar(np.array([3])), int(np.product([2, 3]))],
    "fromstring": np.fromstring(b"\\1\\0\\2\\0", np.int16).tolist(),
    "of a text": np.fromstring("1 2", sep=" ").tolist(),
    "by position": np.fromstring("1 2", float, 1, " ").tolist(),
    "can be written": np.fromstring(b"\\1", np.uint8).flags.writeable,
    "imp": module.value,
    "getargspec": inspect.getargspec(lambda a, b=1: 0)[:1][0],
    "collections": isinstance([], Iterable) and isinstance({}, Mapping),
    "clock": time.clock() > 0,
}))
"""


def test_names_that_numpy_and_python_removed_are_there(tmp_path, run_tf1):
    (tmp_path / "settings.py").write_text("value = 7\n")
    (tmp_path / "train.py").write_text(MOVED)
    done = run_tf1("train.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "types": ["float", "int", "object", "str", "complex"],
        "others": [True, float("inf"), 3, 6],
        "fromstring": [1, 2],
        "of a text": [1.0, 2.0],
        "by position": [1.0],
        "can be written": True,
        "imp": 7,
        "getargspec": ["a", "b"],
        "collections": True,
        "clock": True,
    }


PRIVATE = """
from estimator_runtime.tf1 import moved
import importlib
for name in moved.RESTORED:
    module, _, attribute = name.rpartition(".")
    if not hasattr(importlib.import_module(module), attribute):
        importlib.import_module(name)
from tensorflow.python.ops import variable_scope
from tensorflow.python import pywrap_tensorflow
import tensorflow as tf
assert tf.pywrap_tensorflow is pywrap_tensorflow
pywrap_tensorflow.NewCheckpointReader
variable_scope.variable(1.0, name="v")
print([v.name for v in tf.global_variables()])
"""


def test_private_names_that_have_moved_are_there(tmp_path, run_tf1):
    (tmp_path / "train.py").write_text(PRIVATE)
    done = run_tf1("train.py")
    assert done.stdout == "['v:0']\n", done.stderr


CHILD = """
import importlib
import numpy as np
first = importlib.import_module("tensorflow")
import tensorflow as tf
print("child", first is tf, hasattr(tf, "placeholder"), np.float, tf.executing_eagerly())
"""
SEEN = "child True True <class 'float'> False"
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-W", "ignore", "child.py"], check=True)
"""


def test_the_children_of_a_program_have_the_mode(tmp_path, run_tf1):
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(PARENT)
    done = run_tf1("parent.py")
    assert done.stdout.strip() == SEEN, done.stderr


def test_the_variable_and_install_turn_it_on_too(tmp_path, python_path, run_program):
    (tmp_path / "child.py").write_text(CHILD)
    by_variable = run_program(
        *("-m", "estimator_runtime", "run", "child.py"),
        **{mode.VARIABLE: "1"},
    )
    assert by_variable.stdout.strip() == SEEN, by_variable.stderr
    text = "import estimator_runtime as er; er.install(tf1=True); import child"
    text += "; er.install(tf1=True, tf1_resource_variables=False)"
    by_install = run_program("-c", text, PYTHONPATH=python_path(tmp_path))
    assert by_install.stdout.strip() == SEEN, by_install.stderr
    text = "import estimator_runtime as er; er.install(); import child"
    without = run_program("-c", text, PYTHONPATH=python_path(tmp_path))
    assert "has no attribute 'float'" in without.stderr
    text = (
        "import estimator_runtime as er; er.install(tf1=True)\n"
        "import tensorflow as tf; print(tf.Variable(1).op.type, flush=True)\n"
        "er.install(tf1_resource_variables=True, tf1=True)"
    )
    late = run_program("-c", text)
    assert (late.stdout, late.stderr.splitlines()[-1]) == (
        "VariableV2\n",
        "estimator_runtime.errors.CompatibilityError: install: tf1_resource_variables "
        "was given after TensorFlow 1 mode had been turned on; set "
        "ESTIMATOR_RUNTIME_TF1_RESOURCE_VARIABLES for the program instead",
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            "import estimator_runtime as er, tensorflow as tf; tf.constant(1)",
            "TensorFlow has executed an op",
        ),
        (
            "import estimator_runtime as er, model",
            "{}/model.py has imported TensorFlow 2",
        ),
    ],
)
def test_it_is_refused_after_the_program_has_used_tensorflow_2(
    tmp_path, run_program, program, reason
):
    (tmp_path / "model.py").write_text("import tensorflow as tf\n")
    done = run_program("-c", f"{program}; er.install(tf1=True)")
    assert done.stderr.splitlines()[-1] == (
        "estimator_runtime.errors.CompatibilityError: TensorFlow 1 mode was asked for "
        f"after {reason.format(tmp_path)}; call "
        "estimator_runtime.install(tf1=True) before `import tensorflow`, or use: "
        "estimator-runtime run --tf1"
    )


HINT = (
    "estimator-runtime: that name may be of TensorFlow 1; a program that was written for it "
    "runs with 'estimator-runtime run --tf1', and 'estimator-runtime doctor' says what "
    "it needs"
)


@pytest.mark.parametrize(
    "program, is_told",
    [
        ("from tensorflow.contrib import slim", True),
        ("import tensorflow as tf\ntf.train.AdamOptimizer", True),
        ("import tensorflow as tf\ntf.compat.v1.Oracle", False),
    ],
)
def test_without_the_mode_an_error_at_a_name_of_version_1_leads_to_it(
    tmp_path, program, is_told, run_program
):
    (tmp_path / "train.py").write_text(program)
    done = run_program("-m", "estimator_runtime", "run", "train.py")
    lines = done.stderr.splitlines()
    assert "Traceback (most recent call last):" in lines
    assert (done.returncode, lines.count(HINT)) == (1, int(is_told)), done.stderr


def test_another_value_of_the_variable_is_an_error():
    assert not mode.is_wanted({})
    assert not mode.is_wanted({mode.VARIABLE: "0"})
    with pytest.raises(ConfigError) as raised:
        mode.is_wanted({mode.VARIABLE: "yes"})
    assert str(raised.value) == (
        "ESTIMATOR_RUNTIME_TF1 is 'yes'; give 1 for the API of TensorFlow 1, or 0"
    )
    with pytest.raises(ConfigError) as raised:
        mode.has_resource_variables({mode.RESOURCES_VARIABLE: "yes"})
    assert str(raised.value) == (
        "ESTIMATOR_RUNTIME_TF1_RESOURCE_VARIABLES is 'yes'; give 1 for resource "
        "variables, or 0"
    )


def test_resource_variables_without_the_mode_are_an_error():
    with pytest.raises(ConfigError) as raised:
        estimator_runtime.install(tf1=False, tf1_resource_variables=True)
    assert str(raised.value) == (
        "install: tf1_resource_variables is True without TensorFlow 1 mode; add "
        "tf1=True, or leave it out"
    )


TRAINING = """
import argparse, json, sys
import numpy as np
import tensorflow as tf


def model_fn(features, labels, mode, params):
    hidden = tf.layers.dense(features["x"], 4, activation=tf.nn.relu)
    hidden = tf.layers.batch_normalization(hidden, training=mode == "train")
    y = tf.layers.dense(hidden, 1)[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y})
    loss = tf.losses.mean_squared_error(labels, y)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.AdamOptimizer(params.rate).minimize(
            loss, tf.train.get_global_step()
        )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    x = np.arange(60, dtype=np.float).reshape(20, 3).astype("f") / 60
    data = tf.data.Dataset.from_tensor_slices(({"x": x}, x.sum(1)))
    return data.repeat().batch(5).make_one_shot_iterator().get_next()


def main(_):
    config = tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=20)
    params = argparse.Namespace(rate=0.1)
    estimator = tf.estimator.Estimator(model_fn, sys.argv[1], config, params)
    estimator.train(input_fn, max_steps=40)
    names = [n for n in estimator.get_variable_names() if "Adam" not in n]
    values = {n: estimator.get_variable_value(n).sum().item() for n in names}
    print(json.dumps([estimator.evaluate(input_fn, 4)["loss"].item(), values]))


if __name__ == "__main__":
    tf.app.run()
"""
NAMES = {
    "global_step",
    *(f"dense{n}/{part}" for n in ("", "_1") for part in ("kernel", "bias")),
    *(
        f"batch_normalization/{part}"
        for part in ("beta", "gamma", "moving_mean", "moving_variance")
    ),
    "beta1_power",
    "beta2_power",
}


@pytest.mark.long("two whole programs, one after the other")
def test_a_program_trains_and_its_checkpoint_has_the_names_of_version_1(
    tmp_path, run_program
):
    (tmp_path / "train.py").write_text(TRAINING)
    runs = {
        options: run_program(
            *("-m", "estimator_runtime", "run", "--tf1", *options),
            *("train.py", f"model{number}"),
        )
        for number, options in enumerate(
            [
                ("--tf1-resource-variables", "--steps-per-run", "2"),
                ("--loop", "stock", "--no-async-checkpoint"),
            ]
        )
    }
    fused, stock = runs.values()
    assert fused.returncode == 0, fused.stderr
    assert "running several steps per session call from now on" in fused.stderr
    [loss, values] = json.loads(fused.stdout)
    assert set(values) == NAMES
    assert 0 < loss < 10
    # The kind of variables, fused steps and background checkpoints change nothing.
    assert fused.stdout == stock.stdout
