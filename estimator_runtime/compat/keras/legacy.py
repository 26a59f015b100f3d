"""Legacy Keras for the process, where Estimators need it: TensorFlow >= 2.16.

From 2.16 on `tf.keras` is Keras 3, with which no Estimator trains (variable names
with slashes are refused) and `tf.compat.v1.layers` does not exist. TensorFlow
itself offers the way back: tf-keras, chosen by TF_USE_LEGACY_KERAS when
TensorFlow is imported. On 2.15 the variable must stay unset: Keras 2 is already
there, and TensorFlow would ask for tf-keras in vain.
"""

import os
import sys
import types

from estimator_runtime.errors import CompatibilityError

VARIABLE = "TF_USE_LEGACY_KERAS"
# Set beside it: children of other Python installations are to do without.
OURS_VARIABLE = "ESTIMATOR_RUNTIME_LEGACY_KERAS"
_YES = ("true", "True", "1")  # the values TensorFlow's loaders accept


def choose_legacy(version):
    """Make `tf.keras` of this process tf-keras, if TensorFlow >= 2.16.

    Args:
        version: TensorFlow's version as (major, minor).

    Raises:
        CompatibilityError: If `tf.keras` is already Keras 3, or the environment
            asks for it.
    """
    if version < (2, 16):
        return
    asked = os.environ.get(VARIABLE)
    if asked is not None and asked not in _YES:
        raise CompatibilityError(
            f"{VARIABLE} is {asked!r} in the environment, but Estimators on "
            f"TensorFlow {version[0]}.{version[1]} need legacy Keras; unset it, or "
            "set it to 1"
        )
    if "tensorflow" in sys.modules:
        _check_unbound()
        _forget_vain_choices()
        _put_tf_keras_on_path()
    # Also for the child processes of this one, which inherit it.
    os.environ[VARIABLE] = "1"
    if asked is None:
        os.environ[OURS_VARIABLE] = "1"


def resolve_loaders(_module):
    """Load what TensorFlow's Keras loaders stand for, on this thread, now.

    A loader that two threads meet for the first time recurses without end, then
    hangs; strategies call model_fn in one thread per replica.
    """
    from tensorflow.python.util.lazy_loader import KerasLazyLoader

    for _, module in _api_modules():
        for value in list(vars(module).values()):
            if isinstance(value, KerasLazyLoader):
                value.__dir__()  # what dir() calls: resolves the loader, no more


def _check_unbound():
    """Refuse a process in which something under `tf.keras` is Keras 3 already."""
    for owner, module in _api_modules():
        for name, value in list(vars(module).items()):
            if _is_keras_3(value):
                raise CompatibilityError(
                    f"{owner}.{name} is already bound to Keras 3, by an import or a "
                    "use of tf.keras that came too early; call "
                    f"estimator_runtime.install() before it, or set {VARIABLE}=1 "
                    "before importing tensorflow"
                )


def _api_modules():
    for name, module in list(sys.modules.items()):
        if name == "tensorflow" or name.startswith(
            ("tensorflow._api.", "tensorflow.compat")
        ):
            yield name, module


def _is_keras_3(value):
    # Told by its file: `import tensorflow.keras` gives the module another name. A
    # loader not yet used has none, and must not be asked: that would use it.
    if not isinstance(value, types.ModuleType):
        return False
    file = vars(value).get("__file__")
    return os.path.join("keras", "_tf_keras", "") in (file or "")


def _forget_vain_choices():
    """Let loaders choose anew that chose Keras 3, and found nothing in it.

    Whoever asks for `tf.compat.v1.layers.dense`, or whether it is there, leaves such a
    loader behind; it would say for ever that Keras 3 has none.
    """
    for _, module in _api_modules():
        for value in list(vars(module).values()):
            if not isinstance(value, types.ModuleType):
                continue
            loader = vars(value)  # asked by its attributes, it would load
            for prefix in ("_tfll", ""):  # newer TensorFlows, and the first of them
                if loader.get(f"{prefix}_keras_version") == "keras_3":
                    loader[f"{prefix}_initialized"] = False


# Ends of the names of TensorFlow's modules to what it puts on their paths.
_KERAS_ON_PATHS = (
    ("tensorflow", "_v2.keras"),
    (".compat.v2", "_v2.keras"),
    (".compat.v1", "_v1.keras"),
    (".compat.v1", "_v1.keras.__internal__.legacy.layers"),
)


def _put_tf_keras_on_path():
    # `import tensorflow.keras` looks along the package's path: Keras 3's folder
    # is on it when the variable was not set, tf-keras's has to come first.
    from tensorflow.python.tools import module_util

    for name, module in _api_modules():
        for end, keras_name in _KERAS_ON_PATHS:
            if not name.endswith(end):
                continue
            folder = module_util.get_parent_dir_for_name(f"tf_keras.api.{keras_name}")
            if folder not in module.__path__:
                module.__path__ = [folder, *module.__path__]
