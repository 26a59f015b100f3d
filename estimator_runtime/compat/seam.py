"""The one seam: where the frozen Estimator meets this runtime.

An untouched script reaches the runtime through three names. Each gets one object,
whichever road a program takes to it, so that a program may patch or subclass it
through one module and use it through another.
"""

import importlib
import logging
import sys
import types

from estimator_runtime import compat

_logger = logging.getLogger(__name__)
# Imported when the frozen package has been; each uses `replaces` below.
_RUNTIME_MODULES = (
    "estimator_runtime.run_config",
    "estimator_runtime.session",
    "estimator_runtime.training",
)
_FROZEN_PACKAGE = "tensorflow_estimator"
# Gives the names of a module, and asks the module itself for nothing: many a lazy one
# loads for any attribute, also for __dict__, and may fail to.
_names_of = vars(types.ModuleType)["__dict__"].__get__


def connect(_module):
    """Import the runtime's side, which puts itself in place."""
    for name in _RUNTIME_MODULES:
        importlib.import_module(name)


def replaces(module_name, stock=None):
    """Decorate the runtime's version of a name of TensorFlow or the frozen package.

    The decorated object takes the place of the attribute of the same name in
    `module_name` and, if the frozen package has other names for it, of those.

    Args:
        module_name: Module that owns the name and is imported already.
        stock: The object that is replaced, where a program may have put one of its own
            in its place before; that stays.
    """

    def decorate(ours):
        compat.install()  # whoever imports only this one module gets the rest too
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


def _holders():
    """Give the modules that may hold a frozen object under another name."""
    for name, module in list(sys.modules.items()):
        is_copy = name.startswith("tensorflow.python.estimator.")  # on 2.15, stock's
        is_frozen = name.partition(".")[0] == _FROZEN_PACKAGE
        if (is_frozen or is_copy) and module is not None:
            yield module
    yield from _used_loaders()


def _used_loaders():
    """Give the lazy modules that have copied the names of a frozen one.

    tf.estimator and its like do so when they are first used, and what a program has by
    `from tensorflow import estimator` is such a module of its own.
    """
    frozen = sys.modules.get(_FROZEN_PACKAGE)
    if frozen is None or getattr(frozen.__spec__, "_initializing", False):
        return  # nothing can have used it yet
    from tensorflow.python.util.lazy_loader import LazyLoader

    for module in list(sys.modules.values()):
        # By their types: to be asked for __class__, some lazy modules load.
        if not issubclass(type(module), types.ModuleType):
            continue
        for value in list((_names_of(module) or {}).values()):
            if issubclass(type(value), LazyLoader) and "RunConfig" in vars(value):
                yield value
