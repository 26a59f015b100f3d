"""Replacements of what TensorFlow 2.16 removed.

The frozen package or the programs that use it import these names.
"""

import importlib
import sys
import types
from importlib.machinery import ModuleSpec
from typing import NoReturn

from estimator_runtime.estimator.removed import api, input_pipeline, tpu_embedding

_TPU = "tensorflow.python.tpu"
_EMBEDDING_MODULES = ("tpu_embedding", "session_support", "tpu_embedding_gradient")
_API_PARAMETERS = (
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "StochasticGradientDescentParameters",
)


def restore(_tensorflow: types.ModuleType) -> None:
    """Restore `tf.estimator` and the other names that TensorFlow 2.16 removed."""
    api.register_export_names()
    ours = importlib.import_module(
        "estimator_runtime.estimator.removed.estimator_training"
    )
    _provide("tensorflow.python.distribute", "estimator_training", ours)
    _provide_tpu_embedding()
    _provide_async_checkpoint()
    api.provide_estimator()
    input_pipeline.provide()


def _provide_tpu_embedding() -> None:
    """Provide importable stand-ins for the TPU embedding modules.

    Together with the configuration classes of embeddings they are sufficient for
    `TPUEstimator(use_tpu=False)`. Their other names are classes that raise
    NotImplementedError when they are instantiated.
    """
    for name in _EMBEDDING_MODULES:
        _provide(_TPU, name, _StandIn(f"{_TPU}.{name}"))
    vars(sys.modules[f"{_TPU}.tpu_embedding"]).update(tpu_embedding.CLASSES)
    parameters = {name: tpu_embedding.CLASSES[name] for name in _API_PARAMETERS}
    api.add("tpu.experimental", parameters, only_v1=True)


def _provide_async_checkpoint() -> None:
    """Provide the module of the hook that saves while a TPU goes on training.

    This runtime saves in the background with TensorFlow's CheckpointSaverHook itself,
    but not with its subclasses. So the former name of the hook is an alias of
    CheckpointSaverHook, which takes the same arguments.
    """
    from tensorflow.python.training import basic_session_run_hooks as hooks

    name = f"{_TPU}.async_checkpoint"
    module = types.ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module)["AsyncCheckpointSaverHook"] = hooks.CheckpointSaverHook
    _provide(_TPU, "async_checkpoint", module)


def _provide(package_name: str, name: str, module: types.ModuleType) -> None:
    """Make a module importable as `name` of a package."""
    sys.modules[f"{package_name}.{name}"] = module
    setattr(importlib.import_module(package_name), name, module)


class _StandIn(types.ModuleType):
    """A module whose missing public names are classes that cannot be instantiated."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # Without a spec, `importlib.util.find_spec` raises an error for the module.
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> type:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = _unavailable(self.__name__, name)
        setattr(self, name, value)
        return value


def _unavailable(module_name: str, name: str) -> type:
    """Return a class that raises NotImplementedError when you call it."""

    def refuse(cls: type, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"{module_name}.{name} was removed in TensorFlow 2.16; TPU training "
            "needs TensorFlow 2.15 or older"
        )

    return type(name, (), {"__module__": module_name, "__new__": refuse})
