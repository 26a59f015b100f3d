"""Every road to Estimators leads to the same objects, in whatever order it is taken.

Each program runs in a process of its own: what counts is what it imports first.
"""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from estimator_runtime.tf_internals import versions

_KERAS_3_IS_THERE = versions.parse(tf.__version__) >= (2, 16)
_SAME_OBJECTS = """
import tensorflow as tf
import tensorflow.compat.v1
import tensorflow_estimator
from tensorflow import estimator
from tensorflow.compat.v1 import estimator as estimator_v1
from tensorflow_estimator.python.estimator import estimator as private
from tensorflow_estimator.python.estimator import run_config, training
import estimator_runtime as er
assert {er.RunConfig} == {
    tf.estimator.RunConfig, tf.compat.v1.estimator.RunConfig,
    tf.compat.v2.estimator.RunConfig, tensorflow.compat.v1.estimator.RunConfig,
    estimator.RunConfig, estimator_v1.RunConfig, run_config.RunConfig,
    tensorflow_estimator.estimator.RunConfig,
}
assert {er.train_and_evaluate} == {
    tf.estimator.train_and_evaluate, tf.compat.v1.estimator.train_and_evaluate,
    training.train_and_evaluate,
}
assert private.training.MonitoredTrainingSession is er.MonitoredTrainingSession
assert issubclass(tf.estimator.Estimator, private.Estimator)
assert tf.compat.v1.estimator.Estimator is private.Estimator
assert isinstance(tf.estimator.Estimator(lambda features: None).config, er.RunConfig)
assert tf.compat.v1.layers.dense  # legacy Keras only
print("ok")
"""


def _run(program, **environ):
    # Without what install() of this process left for its children.
    inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "first_lines",
    [
        "import estimator_runtime; estimator_runtime.install()",
        "import tensorflow, estimator_runtime; estimator_runtime.install()",
        "import tensorflow.compat.v1, estimator_runtime; estimator_runtime.install()",
        "import estimator_runtime; estimator_runtime.RunConfig",
        "from estimator_runtime.session.run_config import RunConfig",
        "from estimator_runtime.distributed.train_and_evaluate import train_and_evaluate",
        "import estimator_runtime.session.monitored_training_session, estimator_runtime as er; er.install()",
    ],
)
def test_one_object_for_each_name_by_every_road_after(first_lines):
    result = _run(first_lines + _SAME_OBJECTS)
    assert (result.stdout.strip(), result.returncode) == ("ok", 0), result.stderr


@pytest.mark.skipif(not _KERAS_3_IS_THERE, reason="TensorFlow 2.15 can import it")
@pytest.mark.parametrize(
    "statement",
    [
        "import tensorflow_estimator",
        "from tensorflow_estimator.python.estimator import estimator",
    ],
)
def test_an_import_that_failed_before_install_does_no_harm(statement):
    program = f"""
try:
    {statement}
except ImportError:
    pass
else:
    raise SystemExit("it is there")
import sys
assert [each for each in sys.modules if each.startswith("tensorflow_estimator")]
import estimator_runtime
estimator_runtime.install()
{statement}
"""
    result = _run(program + _SAME_OBJECTS)
    assert (result.stdout.strip(), result.returncode) == ("ok", 0), result.stderr


@pytest.mark.skipif(
    _KERAS_3_IS_THERE, reason="TensorFlow >= 2.16 cannot import it before install()"
)
def test_what_is_imported_and_complete_is_not_dropped():
    program = """
import sys, tensorflow
tensorflow.estimator.Estimator
there = {n: m for n, m in sys.modules.items() if n.startswith("tensorflow_estimator")}
import estimator_runtime
estimator_runtime.install()
assert len(there) > 50 and there.items() <= sys.modules.items()
print("ok")
"""
    result = _run(program)
    assert (result.stdout.strip(), result.returncode) == ("ok", 0), result.stderr


@pytest.mark.skipif(
    _KERAS_3_IS_THERE, reason="TensorFlow >= 2.16 cannot import it before install()"
)
def test_estimators_imported_before_install_get_the_runtime_too():
    program = """
import tensorflow as tf
from tensorflow import estimator as by_name
config = tf.estimator.RunConfig()
tf.compat.v1.estimator.RunConfig, by_name.RunConfig
import estimator_runtime as er
er.install()
assert isinstance(config, er.RunConfig)
assert by_name.RunConfig is er.RunConfig
assert by_name.train_and_evaluate is er.train_and_evaluate
assert tf.estimator.Estimator(lambda features: None, config=config).config
"""
    result = _run(program + _SAME_OBJECTS)
    assert (result.stdout.strip(), result.returncode) == ("ok", 0), result.stderr


@pytest.mark.skipif(
    _KERAS_3_IS_THERE, reason="TensorFlow >= 2.16 cannot import it before install()"
)
def test_a_lazy_module_of_others_that_cannot_load_is_left_alone(tmp_path):
    (tmp_path / "unloadable.py").write_text("raise OSError('its library is missing')")
    program = """
import importlib.util, sys, tensorflow, estimator_runtime
tensorflow.estimator.RunConfig
spec = importlib.util.find_spec("unloadable")
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["unloadable"] = lazy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lazy)
"""
    result = _run(
        program + "estimator_runtime.install()" + _SAME_OBJECTS,
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path[1:]]),
    )
    assert (result.stdout.strip(), result.returncode) == ("ok", 0), result.stderr


def test_install_alone_imports_no_tensorflow():
    program = """
import sys, estimator_runtime
estimator_runtime.install()
estimator_runtime.install()
print([name for name in ("tensorflow", "numpy", "wrapt") if name in sys.modules])
"""
    assert _run(program).stdout.strip() == "['wrapt']"


def test_a_program_may_set_tensorflows_variables_after_install():
    program = """
import os, estimator_runtime
estimator_runtime.install()
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
import tensorflow as tf
tf.raw_ops  # any use
"""
    # At level 0 TensorFlow tells at import which CPU instructions it can use.
    assert "CPU instructions" in _run(program).stderr


@pytest.mark.skipif(not _KERAS_3_IS_THERE, reason="tf.keras is Keras 2 on 2.15")
@pytest.mark.parametrize(
    "too_early",
    [
        "import tensorflow as tf; tf.keras.layers",
        "from tensorflow.keras import layers",
        "import tensorflow as tf; tf.optimizers.SGD",
    ],
)
def test_keras_3_bound_before_install_is_refused_in_one_line(too_early):
    program = f"{too_early}\nimport estimator_runtime\nestimator_runtime.install()"
    [error] = [line for line in _run(program).stderr.splitlines() if "Error: " in line]
    assert error.startswith("estimator_runtime.errors.CompatibilityError: tensorflow.")
    assert error.endswith(
        " is already bound to Keras 3, by an import or a use of tf.keras that came too "
        "early; call estimator_runtime.install() before it, or set "
        "TF_USE_LEGACY_KERAS=1 before importing tensorflow"
    )


@pytest.mark.skipif(not _KERAS_3_IS_THERE, reason="tf.keras is Keras 2 on 2.15")
def test_an_environment_that_asks_for_keras_3_is_refused_with_the_remedy():
    program = "import estimator_runtime; estimator_runtime.install()"
    result = _run(program, TF_USE_LEGACY_KERAS="0")
    assert (
        result.stderr.strip()
        .splitlines()[-1]
        .endswith(
            "TF_USE_LEGACY_KERAS is '0' in the environment, but Estimators on TensorFlow "
            "2.21 need legacy Keras; unset it, or set it to 1"
        )
    )


@pytest.mark.skipif(_KERAS_3_IS_THERE, reason="2.16 and newer need the variable")
def test_on_2_15_legacy_keras_is_never_asked_for():
    program = """
import os, estimator_runtime, tensorflow
estimator_runtime.install()
print(os.environ.get("TF_USE_LEGACY_KERAS"))
"""
    assert _run(program).stdout.strip() == "None"


_WITHOUT_A_PRIVATE_NAME = """
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy
del collective_all_reduce_strategy.CollectiveAllReduceExtended._start_check_health_thread
import estimator_runtime as er
from estimator_runtime.tf_internals import versions
"""


def test_a_tensorflow_that_nobody_tried_and_that_lacks_a_name_goes_on_with_a_line():
    program = _WITHOUT_A_PRIVATE_NAME + "versions.NEWEST_TESTED = (2, 14)\ner.install()"
    result = _run(program + _SAME_OBJECTS)
    assert (result.stdout.strip(), result.returncode) == ("ok", 0), result.stderr
    assert (
        "evaluator of a multi-worker strategy cannot be patched on this TensorFlow, and "
        "stays as it is (it checks the health of peers, has none, and cannot be copied "
        "then): AttributeError: " in result.stderr
    )


def test_a_tested_tensorflow_that_lacks_a_name_is_an_error():
    result = _run(_WITHOUT_A_PRIVATE_NAME + "er.install()")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("AttributeError: ")


def test_a_vain_look_for_legacy_layers_before_install_is_forgotten():
    program = """
import tensorflow as tf
import tensorflow.compat.v1 as tf1
for api in (tf.compat.v1, tf1):
    hasattr(api.layers, "dense"), hasattr(api.nn.rnn_cell, "BasicRNNCell")
import estimator_runtime as er
er.install()
tf.estimator.RunConfig
for api in (tf.compat.v1, tf1):
    assert api.layers.dense and api.nn.rnn_cell.BasicRNNCell
with tf.Graph().as_default():
    tf1.layers.dense(tf.zeros([2, 3]), 4)
"""
    result = _run(program + _SAME_OBJECTS)
    assert (result.stdout.strip(), result.returncode) == ("ok", 0), result.stderr


def test_keras_is_found_by_the_path_of_each_api_that_was_there_before_install():
    program = """
import tensorflow.compat.v1 as tf1
import tensorflow.compat.v2 as tf2
import estimator_runtime as er
er.install()
from tensorflow.compat.v1.keras import layers as v1
from tensorflow.compat.v2.keras import layers as v2
from tensorflow.compat.v1.layers import dense
from tensorflow.keras import layers
print({each.Dense.__module__.partition(".")[0] for each in (v1, v2, layers)})
"""
    keras = "tf_keras" if _KERAS_3_IS_THERE else "keras"
    result = _run(program)
    assert result.stdout.strip() == f"{{{keras!r}}}", result.stderr


@pytest.mark.parametrize("api", ["tensorflow", "tensorflow.compat.v1"])
def test_a_star_import_brings_estimator(api):
    program = f"""
import estimator_runtime as er
er.install()
from {api} import *
assert estimator.RunConfig is er.RunConfig
"""
    result = _run(program)
    assert result.returncode == 0, result.stderr
