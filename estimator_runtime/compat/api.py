"""`tf.estimator` in every API module that had it up to TensorFlow 2.15."""

import importlib
import importlib.util
import os
import re
import sys

from tensorflow.python.util.lazy_loader import LazyLoader

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
