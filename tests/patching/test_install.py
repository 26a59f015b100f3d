"""Every way to import Estimators gives the same objects, in whatever order.

Each program runs in a process of its own: what counts is what it imports first.
"""

import functools

import pytest
import tensorflow as tf

from estimator_runtime.tf_internals import versions

_IS_NEW = versions.parse(tf.__version__) >= (2, 16)
on_new = pytest.mark.skipif(not _IS_NEW, reason="tf.keras is Keras 2 on 2.15")
on_2_15 = pytest.mark.skipif(
    _IS_NEW, reason="TensorFlow >= 2.16 cannot import it before install()"
)
_SAME_OBJECTS = """
import tensorflow as tf
import tensorflow.compat.v1
import tensorflow_estimator
from tensorflow import estimator
from tensorflow.compat.v1 import estimator as estimator_v1
from tensorflow.python.estimator import training as old_training
from tensorflow.python.tpu import tpu_config, tpu_estimator
from tensorflow_estimator.python.estimator import estimator as private
from tensorflow_estimator.python.estimator import run_config, training
from tensorflow_estimator.python.estimator.tpu import tpu_estimator as frozen_tpu
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
assert old_training is training and tpu_estimator is frozen_tpu
assert tpu_config.RunConfig is tf.compat.v1.estimator.tpu.RunConfig
assert tpu_estimator.TPUEstimator is tf.compat.v1.estimator.tpu.TPUEstimator
print("ok")
"""


@pytest.fixture
def run(run_python):
    """Return a function that runs a program; it returns the ended process."""
    return functools.partial(run_python, "-W", "ignore", "-c")


@pytest.fixture
def check_after(run):
    """Return a function that checks the objects that there are after some lines."""

    def check_after(first_lines):
        done = run(f"{first_lines}\n{_SAME_OBJECTS}")
        assert (done.stdout.strip(), done.returncode) == ("ok", 0), done.stderr
        return done

    return check_after


@pytest.mark.parametrize(
    "first_line",
    [
        "from tensorflow.python.estimator import run_config",
        "import tensorflow_estimator",
        "from tensorflow import estimator",
        "from tensorflow.keras import layers",
        "from tensorflow.python.tpu import util, error_handling, tpu_context",
    ],
)
def test_one_object_for_each_name_whatever_a_program_imports_first(
    check_after, first_line
):
    check_after(f"import estimator_runtime; estimator_runtime.install(); {first_line}")


@on_new
@pytest.mark.parametrize(
    "statement",
    [
        "import tensorflow_estimator",
        "from tensorflow_estimator.python.estimator import estimator",
    ],
)
def test_an_import_that_failed_before_install_does_no_harm(check_after, statement):
    check_after(f"""
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
""")


@on_2_15
def test_estimators_imported_before_install_get_the_runtime_too(check_after):
    check_after("""
import sys
import tensorflow as tf
from tensorflow import estimator as by_name
config = tf.estimator.RunConfig()
tf.compat.v1.estimator.RunConfig, by_name.RunConfig
there = {n: m for n, m in sys.modules.items() if n.startswith("tensorflow_estimator")}
import estimator_runtime as er
er.install()
assert len(there) > 50 and there.items() <= sys.modules.items()
assert isinstance(config, er.RunConfig)
assert by_name.RunConfig is er.RunConfig
assert by_name.train_and_evaluate is er.train_and_evaluate
assert tf.estimator.Estimator(lambda features: None, config=config).config
""")


def test_install_imports_no_tensorflow_and_reads_its_variables_later(run):
    program = """
import os, sys, estimator_runtime
estimator_runtime.install()
estimator_runtime.install()
print([name for name in ("tensorflow", "numpy", "wrapt") if name in sys.modules])
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
import tensorflow as tf
tf.raw_ops  # any use
"""
    done = run(program)
    assert done.stdout.strip() == "['wrapt']"
    # At level 0 TensorFlow tells at import which CPU instructions it can use.
    assert "CPU instructions" in done.stderr


@on_new
@pytest.mark.parametrize(
    "too_early",
    [
        "import tensorflow as tf; tf.keras.layers",
        "from tensorflow.keras import layers",
    ],
)
def test_keras_3_that_is_bound_before_install_is_an_error(run, too_early):
    program = f"{too_early}\nimport estimator_runtime\nestimator_runtime.install()"
    [error] = [line for line in run(program).stderr.splitlines() if "Error: " in line]
    assert error.startswith("estimator_runtime.errors.CompatibilityError: tensorflow.")
    assert error.endswith(
        " is already bound to Keras 3, by an import or a use of tf.keras that came too "
        "early; call estimator_runtime.install() before it, or set "
        "TF_USE_LEGACY_KERAS=1 before importing tensorflow"
    )


@on_new
def test_an_environment_that_selects_keras_3_is_an_error_with_a_remedy(run):
    program = "import estimator_runtime; estimator_runtime.install()"
    last_line = run(program, TF_USE_LEGACY_KERAS="0").stderr.splitlines()[-1]
    assert last_line.endswith(
        "TF_USE_LEGACY_KERAS is '0' in the environment, but Estimators on TensorFlow "
        "2.21 need legacy Keras; unset it, or set it to 1"
    )


@on_2_15
def test_on_2_15_legacy_keras_is_never_selected(run):
    program = """
import os, estimator_runtime, tensorflow
estimator_runtime.install()
print(os.environ.get("TF_USE_LEGACY_KERAS"))
"""
    assert run(program).stdout.strip() == "None"


_WITHOUT_A_PRIVATE_NAME = """
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy
del collective_all_reduce_strategy.CollectiveAllReduceExtended._start_check_health_thread
import estimator_runtime as er
from estimator_runtime.tf_internals import versions
"""


def test_an_untested_tensorflow_that_lacks_a_name_works_with_a_warning(check_after):
    result = check_after(
        f"{_WITHOUT_A_PRIVATE_NAME}versions.NEWEST_TESTED = (2, 14)\ner.install()"
    )
    assert (
        "multi-worker strategies cannot be patched on this TensorFlow, and stays as it "
        "is (they fail in evaluators and with sparse gradients of changing length, "
        "ignore SIGTERM, and train without their ps): AttributeError: " in result.stderr
    )


def test_a_tested_tensorflow_that_lacks_a_name_is_an_error(run):
    result = run(_WITHOUT_A_PRIVATE_NAME + "er.install()")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("AttributeError: ")


def test_each_api_that_was_imported_before_install_finds_keras_and_estimator(run):
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
from tensorflow import *
assert estimator.RunConfig is er.RunConfig
from tensorflow.compat.v1 import *
assert estimator.RunConfig is er.RunConfig
"""
    keras = "tf_keras" if _IS_NEW else "keras"
    result = run(program)
    assert (result.stdout.strip(), result.returncode) == (f"{{{keras!r}}}", 0), (
        result.stderr
    )
