"""Names that are put back into TensorFlow's API modules, which had them up to 2.15."""

import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import wrapt
from tensorflow.python.util import tf_export
from tensorflow.python.util.lazy_loader import LazyLoader

_NAME = "estimator"
_V1_ROOTS = ("tensorflow.compat.v1", "tensorflow._api.v2.compat.v1")
_V2_ROOTS = (
    "tensorflow",
    "tensorflow.compat.v2",
    "tensorflow._api.v2",
    "tensorflow._api.v2.compat.v2",
)
_API_MODULE = re.compile(r"tensorflow(\._api\.v2)?(\.compat(\.v[12])?)*(\.v2)?")


def register_export_names() -> None:
    """Register "estimator" in TensorFlow's export registry, and in its four look-ups.

    At import, the frozen package decorates its classes with `estimator_export`, a
    subclass of TensorFlow's `api_export`, which needs this name.
    """
    tf_export.ESTIMATOR_API_NAME = _NAME
    for version, suffix, registry in (
        ("v1", "_v1", tf_export.API_ATTRS_V1),
        ("v2", "", tf_export.API_ATTRS),
    ):
        entry = type(registry[tf_export.TENSORFLOW_API_NAME])
        registry[_NAME] = entry(
            names=f"_estimator_api_names{suffix}",
            constants=f"_estimator_api_constants{suffix}",
        )
        _extend(f"get_{version}_names", registry[_NAME].names)
        _extend(f"get_{version}_constants", registry[_NAME].constants)


def _extend(function: str, attribute: str) -> None:
    """Make a lookup function of tf_export include an attribute of the symbols."""
    original = getattr(tf_export, function)

    @functools.wraps(original)
    def extended(symbol: Any) -> list[Any]:
        # `__dict__`, because the names of a base class do not count.
        return [*original(symbol), *getattr(symbol, "__dict__", {}).get(attribute, ())]

    setattr(tf_export, function, extended)


def provide_estimator() -> None:
    """Add `estimator`, loaded on first use, to tf and its compat modules."""
    # `import tensorflow.compat.v1` makes second copies of the compat modules, which
    # replace `tf.compat`. Done later, by the program or by tf-keras, it would drop the
    # attributes that are set here.
    importlib.import_module("tensorflow.compat.v1")
    importlib.import_module("tensorflow.compat.v2")
    spec = importlib.util.find_spec("tensorflow_estimator")
    [package] = (spec and spec.submodule_search_locations) or []
    for name, module in list(sys.modules.items()):
        if _API_MODULE.fullmatch(name) and hasattr(module, "__version__"):
            _add(module, package, "_v1" if name.endswith(".v1") else "_v2")


def add(path: str, values: Mapping[str, object], *, only_v1: bool = False) -> None:
    """Add names to an API module, such as that of `tf.data.experimental`.

    Args:
        path: Name of the module below the API's roots, such as "data.experimental".
        values: Maps the names to their objects.
        only_v1: Whether to add them to the API of TensorFlow 1 only.
    """

    def update(module: ModuleType) -> None:
        # The importer passes the module itself. In the API of TensorFlow 1, sys.modules
        # has a wrapper of it.
        for name, value in values.items():
            setattr(sys.modules.get(module.__name__, module), name, value)

    # A hook, because `import tensorflow.data.experimental` makes a second copy of the
    # module, which replaces the one that tf.data had.
    for root in _V1_ROOTS if only_v1 else _V1_ROOTS + _V2_ROOTS:
        wrapt.register_post_import_hook(update, f"{root}.{path}")


def _add(module: Any, package: str, version: str) -> None:
    """Add `estimator` to an API module of version "_v1" or "_v2".

    `package` is the folder of the frozen package.
    """
    # For `import tensorflow.estimator`, which uses the path and not the attribute.
    folder = os.path.join(package, "python", "estimator", "api", version)
    if folder not in module.__path__:
        module.__path__ = [folder, *module.__path__]
    module.estimator = LazyLoader(
        "estimator",
        vars(module),
        f"tensorflow_estimator.python.estimator.api.{version}.estimator",
    )
    # TensorFlow has set the names for `from tensorflow import *` before this.
    names = vars(module).get("__all__")
    if isinstance(names, list) and "estimator" not in names:
        names.append("estimator")
