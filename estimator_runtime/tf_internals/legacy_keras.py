"""Selection of legacy Keras for the process, on TensorFlow 2.16 and newer.

From 2.16 on `tf.keras` is Keras 3. No Estimator trains with it, because it refuses
variable names with slashes, and `tf.compat.v1.layers` does not exist. TensorFlow itself
offers a way back: if TF_USE_LEGACY_KERAS is set when TensorFlow is imported, `tf.keras`
is tf-keras. On 2.15 the variable must stay unset: `tf.keras` is Keras 2 there, and
TensorFlow would look for a tf-keras that may not be installed.
"""

import os
import sys
import types
from collections.abc import Iterator

from estimator_runtime.errors import CompatibilityError

VARIABLE = "TF_USE_LEGACY_KERAS"
# Set together with it, so that children of other Python installations can unset both.
OURS_VARIABLE = "ESTIMATOR_RUNTIME_LEGACY_KERAS"
_YES = ("true", "True", "1")  # the values TensorFlow's loaders accept


def choose_legacy(version: tuple[int, int]) -> None:
    """Make `tf.keras` of this process tf-keras, on TensorFlow 2.16 and newer.

    Args:
        version: TensorFlow's version as (major, minor).

    Raises:
        CompatibilityError: If `tf.keras` is already Keras 3, or if the environment
            selects Keras 3.
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
        _reset_failed_loaders()
        _put_tf_keras_on_path()
    # Child processes inherit it.
    os.environ[VARIABLE] = "1"
    if asked is None:
        os.environ[OURS_VARIABLE] = "1"


def resolve_loaders(_module: types.ModuleType) -> None:
    """Load the modules behind TensorFlow's lazy Keras loaders, on this thread.

    A loader that two threads use for the first time at once recurses without end, then
    hangs. Strategies call model_fn in one thread per replica.
    """
    from tensorflow.python.util.lazy_loader import KerasLazyLoader

    for _, module in _api_modules():
        for value in list(vars(module).values()):
            if isinstance(value, KerasLazyLoader):
                value.__dir__()  # dir() calls it; it only resolves the loader


def _check_unbound() -> None:
    """Raise `CompatibilityError` if a part of `tf.keras` is already Keras 3."""
    for owner, module in _api_modules():
        for name, value in list(vars(module).items()):
            if _is_keras_3(value):
                raise CompatibilityError(
                    f"{owner}.{name} is already bound to Keras 3, by an import or a "
                    "use of tf.keras that came too early; call "
                    f"estimator_runtime.install() before it, or set {VARIABLE}=1 "
                    "before importing tensorflow"
                )


def _api_modules() -> Iterator[tuple[str, types.ModuleType]]:
    """Yield the name and the module of each imported module of TensorFlow's API."""
    for name, module in list(sys.modules.items()):
        if name == "tensorflow" or name.startswith(
            ("tensorflow._api.", "tensorflow.compat")
        ):
            yield name, module


def _is_keras_3(value: object) -> bool:
    # By its file, because `import tensorflow.keras` gives the module another name. An
    # unused loader has no file. Its attributes must not be read, as this would load it.
    if not isinstance(value, types.ModuleType):
        return False
    file = vars(value).get("__file__")
    return os.path.join("keras", "_tf_keras", "") in (file or "")


def _reset_failed_loaders() -> None:
    """Reset loaders that selected Keras 3 and did not find their module in it.

    A program that reads `tf.compat.v1.layers.dense`, or checks whether it exists,
    leaves such a loader behind. Without a reset, its attributes stay missing.
    """
    for _, module in _api_modules():
        for value in list(vars(module).values()):
            if not isinstance(value, types.ModuleType):
                continue
            loader = vars(value)  # reading its attributes would load it
            for prefix in ("_tfll", ""):  # newer TensorFlows, and the first of them
                if loader.get(f"{prefix}_keras_version") == "keras_3":
                    loader[f"{prefix}_initialized"] = False


# Ends of the names of TensorFlow's modules, and the packages of Keras whose parent
# folders TensorFlow puts on their paths.
_KERAS_ON_PATHS = (
    ("tensorflow", "_v2.keras"),
    (".compat.v2", "_v2.keras"),
    (".compat.v1", "_v1.keras"),
    (".compat.v1", "_v1.keras.__internal__.legacy.layers"),
)


def _put_tf_keras_on_path() -> None:
    # `import tensorflow.keras` searches the path of the package. Keras 3's folder is on
    # that path if the variable was not set, so tf-keras's folder has to come first.
    from tensorflow.python.tools import module_util

    for name, module in _api_modules():
        for end, keras_name in _KERAS_ON_PATHS:
            if not name.endswith(end):
                continue
            folder = module_util.get_parent_dir_for_name(f"tf_keras.api.{keras_name}")
            if folder not in module.__path__:
                module.__path__ = [folder, *module.__path__]
