"""Modules that TensorFlow 2.16 removed, and the frozen package or its users import."""

import importlib
import sys
import types
from importlib.machinery import ModuleSpec

from estimator_runtime.compat import api

_TPU_MODULES = ("tpu_embedding", "session_support", "tpu_embedding_gradient")
_API_PARAMETERS = (
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "StochasticGradientDescentParameters",
)


def provide_estimator_training(_module):
    """Put our estimator_training where TensorFlow's was."""
    ours = importlib.import_module("estimator_runtime.compat.estimator_training")
    _provide("tensorflow.python.distribute", "estimator_training", ours)


def provide_tpu_stand_ins(_module):
    """Put importable stand-ins where the TPU embedding modules were.

    With what describes an embedding, they are enough for
    `TPUEstimator(use_tpu=False)`; using what they stand for raises
    NotImplementedError.
    """
    for name in _TPU_MODULES:
        stand_in = _StandIn(f"tensorflow.python.tpu.{name}")
        _provide("tensorflow.python.tpu", name, stand_in)
    ours = importlib.import_module("estimator_runtime.compat.tpu_embedding")
    embedding = sys.modules["tensorflow.python.tpu.tpu_embedding"]
    for name in ours.__all__:
        setattr(embedding, name, getattr(ours, name))
    parameters = {name: getattr(ours, name) for name in _API_PARAMETERS}
    api.add("tpu.experimental", parameters, only_v1=True)


def provide_async_checkpoint(_module):
    """Put a module where the hook was that saves while a TPU goes on training.

    This runtime saves so by TensorFlow's CheckpointSaverHook itself, but not by its
    subclasses. So the name stands for that hook, which takes the same arguments.
    """
    from tensorflow.python.training import basic_session_run_hooks

    name = "tensorflow.python.tpu.async_checkpoint"
    module = types.ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module)["AsyncCheckpointSaverHook"] = (
        basic_session_run_hooks.CheckpointSaverHook
    )
    _provide("tensorflow.python.tpu", "async_checkpoint", module)


def _provide(package_name, name, module):
    sys.modules[f"{package_name}.{name}"] = module
    setattr(importlib.import_module(package_name), name, module)


class _StandIn(types.ModuleType):
    """A module whose public names are classes that cannot be made, but for its own."""

    def __init__(self, name):
        super().__init__(name)
        # Else asking whether the module is there is an error.
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = _unavailable(self.__name__, name)
        setattr(self, name, value)
        return value


def _unavailable(module_name, name):
    def refuse(cls, *args, **kwargs):
        raise NotImplementedError(
            f"{module_name}.{name} was removed in TensorFlow 2.16; TPU training "
            "needs TensorFlow 2.15 or older"
        )

    return type(name, (), {"__module__": module_name, "__new__": refuse})
