"""Names of TensorFlow's API in every module that has them, or had them up to 2.15."""

import importlib
import importlib.util
import os
import re
import sys

import wrapt
from tensorflow.python.util.lazy_loader import LazyLoader

_V1_ROOTS = ("tensorflow.compat.v1", "tensorflow._api.v2.compat.v1")
_V2_ROOTS = (
    "tensorflow",
    "tensorflow.compat.v2",
    "tensorflow._api.v2",
    "tensorflow._api.v2.compat.v2",
)
_API_MODULE = re.compile(r"tensorflow(\._api\.v2)?(\.compat(\.v[12])?)*(\.v2)?")


def provide_estimator(_module):
    """Add `estimator`, loaded on first use, to tf and its compat modules."""
    # `import tensorflow.compat.v1` makes second copies of the compat modules that
    # take the place of `tf.compat`. Were that left to the program or to tf-keras,
    # it would happen later and drop the attributes set here.
    importlib.import_module("tensorflow.compat.v1")
    importlib.import_module("tensorflow.compat.v2")
    spec = importlib.util.find_spec("tensorflow_estimator")
    [package] = (spec and spec.submodule_search_locations) or []
    for name, module in list(sys.modules.items()):
        if _API_MODULE.fullmatch(name) and hasattr(module, "__version__"):
            _add(module, package, "_v1" if name.endswith(".v1") else "_v2")


def add(path, values, *, only_v1=False):
    """Add names to an API module, such as that of `tf.data.experimental`.

    Args:
        path: Its name below the API's roots, such as "data.experimental".
        values: Dict of the names and what they are.
        only_v1: Whether to leave out the API of TensorFlow 2.
    """

    def update(module):
        # The importer has the module, and sys.modules, in version 1, its wrapper.
        for name, value in values.items():
            setattr(sys.modules.get(module.__name__, module), name, value)

    # `import tensorflow.data.experimental` makes a second copy of the module, which
    # takes the place of the one that tf.data had.
    for root in _V1_ROOTS if only_v1 else _V1_ROOTS + _V2_ROOTS:
        wrapt.register_post_import_hook(update, f"{root}.{path}")


def _add(module, package, version):
    # For `import tensorflow.estimator`, which goes by the path, not the attribute.
    folder = os.path.join(package, "python", "estimator", "api", version)
    if folder not in module.__path__:
        module.__path__ = [folder, *module.__path__]
    module.estimator = LazyLoader(
        "estimator",
        vars(module),
        f"tensorflow_estimator.python.estimator.api.{version}.estimator",
    )
    # What `from tensorflow import *` gives was settled before this came.
    names = vars(module).get("__all__")
    if isinstance(names, list) and "estimator" not in names:
        names.append("estimator")
