"""The original `tf.contrib`, where it is installed."""

import functools
import pathlib
import sys
import types

from estimator_runtime.tf1.contrib import wheel
from estimator_runtime.tf1.contrib.loader import Finder
from estimator_runtime.tf1.contrib.views import CONTRIB, Views, import_module

# Modules of tf.contrib that were not called as their folders are.
_PLACES = {
    "eager": "eager.python.tfe",
    "optimizer_v2": "optimizer_v2.optimizer_v2_symbols",
    "receptive_field": "receptive_field.receptive_field_api",
    "recurrent": "recurrent.python.recurrent_api",
    "remote_fused_graph": "remote_fused_graph.pylib",
    "specs": "specs.python",
    "summary": "summary.summary",
}


class OriginalContrib:
    """The modules of the original `tf.contrib`.

    Args:
        folder: The folder that `wheel.find` returns.
        views: What the files of `tf.contrib` get as TensorFlow's modules.
    """

    def __init__(self, folder: pathlib.Path, views: Views) -> None:
        self._folder = folder
        # Not its own file, which would import all of it, for many seconds.
        package = types.ModuleType(CONTRIB)
        package.__path__ = [str(folder)]
        sys.modules[CONTRIB] = package
        sys.meta_path.insert(0, Finder(folder, views))

    def attribute(self, name: str) -> types.ModuleType:
        """Return the module `tf.contrib.NAME`.

        Raises:
            ModuleNotFoundError: If there is none.
        """
        return self.module(_PLACES.get(name, name))

    def module(self, path: str) -> types.ModuleType:
        """Return the module that `import tensorflow.contrib.PATH` imports.

        Raises:
            ModuleNotFoundError: If there is none.
        """
        return import_module(f"{CONTRIB}.{path}")

    def names(self) -> list[str]:
        """Return the names of the modules of `tf.contrib`."""
        return sorted(
            path.name
            for path in self._folder.iterdir()
            if path.is_dir() and not path.name.startswith("_")
        )


@functools.cache
def load(views: Views) -> OriginalContrib | None:
    """Return the original `tf.contrib`, or None if it is not installed.

    Args:
        views: See `OriginalContrib`.
    """
    folder = wheel.find()
    return None if folder is None else OriginalContrib(folder, views)
