"""Objects of the frozen package: those that the runtime uses, and those it replaces.

A replaced object is the same in all modules that have it, so a program may patch or
subclass it through one module and use it through another.
"""

import contextlib
import importlib
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from estimator_runtime import patching

_logger = logging.getLogger(__name__)
_Replacement = TypeVar("_Replacement", bound=Callable[..., Any])
_PACKAGE = "tensorflow_estimator"
_ESTIMATORS = f"{_PACKAGE}.python.estimator"
# Original objects of the frozen package: our name to its module and its name there.
# Each is looked up when it is first used: importing the frozen package imports the
# runtime's modules, which use these objects in turn.
_ORIGINALS = {
    "StockRunConfig": ("run_config", "RunConfig"),
    "default_session_config": ("run_config", "get_default_session_config"),
    "StockTrainingExecutor": ("training", "_TrainingExecutor"),
    "assert_eval_spec": ("training", "_assert_eval_spec"),
    "validate_properties": ("run_config", "_validate_properties"),
    "stock_train_and_evaluate": ("training", "train_and_evaluate"),
}
# Returns the names of a module without reading its attributes. Many lazy modules load
# when any attribute is read, __dict__ too, and loading may fail.
_names_of = vars(types.ModuleType)["__dict__"].__get__


def replaces(
    module_name: str, stock: object = None
) -> Callable[[_Replacement], _Replacement]:
    """Decorate the runtime's version of an object of TensorFlow or the frozen package.

    The decorated object replaces the attribute of the same name in `module_name`. It
    also replaces other names of that attribute in the frozen package.

    Args:
        module_name: Module that owns the name. It must be imported already.
        stock: The object to replace, for a name that a program may have replaced
            before. The program's own object stays in place. None replaces any object.
    """

    def decorate(ours: _Replacement) -> _Replacement:
        patching.install()  # for programs that import only this one module
        owner = importlib.import_module(module_name)
        found = getattr(owner, ours.__name__)
        if stock is not None and found is not stock:
            _logger.warning(
                "%s.%s is the program's own; Estimators use that, not this runtime's",
                module_name,
                ours.__name__,
            )
            return ours
        setattr(owner, ours.__name__, ours)
        for module in _holders():
            for name, value in list(vars(module).items()):
                if value is found:
                    setattr(module, name, ours)
        return ours

    return decorate


def _holders() -> Iterator[types.ModuleType]:
    """Yield the modules that may hold a frozen object under another name."""
    for name, module in list(sys.modules.items()):
        # TensorFlow 2.15 has copies of its own.
        is_copy = name.startswith("tensorflow.python.estimator.")
        is_frozen = name.partition(".")[0] == _PACKAGE
        if (is_frozen or is_copy) and module is not None:
            yield module
    yield from _used_loaders()


def _used_loaders() -> Iterator[types.ModuleType]:
    """Yield the lazy modules that have copied the names of a frozen module.

    Modules such as tf.estimator do so when they are first used. The module that a
    program gets by `from tensorflow import estimator` may be another one of them.
    """
    frozen = sys.modules.get(_PACKAGE)
    if frozen is None or getattr(frozen.__spec__, "_initializing", False):
        return  # nothing can have used it yet
    from tensorflow.python.util.lazy_loader import LazyLoader

    for module in list(sys.modules.values()):
        # issubclass, because isinstance reads __class__, for which some of them load.
        if not issubclass(type(module), types.ModuleType):
            continue
        for value in list((_names_of(module) or {}).values()):
            if issubclass(type(value), LazyLoader) and "RunConfig" in vars(value):
                yield value


@contextlib.contextmanager
def start_delay_changed(change: Callable[[float], float]) -> Iterator[None]:
    """Change TensorFlow's start delay per worker, in seconds, within this context."""
    training: Any = importlib.import_module(f"{_ESTIMATORS}.training")
    before = training._DELAY_SECS_PER_WORKER
    training._DELAY_SECS_PER_WORKER = change(before)
    try:
        yield
    finally:
        training._DELAY_SECS_PER_WORKER = before


def __getattr__(name: str) -> Any:
    if name not in _ORIGINALS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    patching.install()
    module, attribute = _ORIGINALS[name]
    value = getattr(importlib.import_module(f"{_ESTIMATORS}.{module}"), attribute)
    # The import may have looked up the same name, and then replaced the original.
    return globals().setdefault(name, value)
