"""The API name "estimator" in TensorFlow's export registry (removed in 2.16).

At import, the frozen package decorates its classes with `estimator_export`, a subclass
of TensorFlow's `api_export`.
"""

import functools
from types import ModuleType
from typing import Any

from tensorflow.python.util import tf_export

NAME = "estimator"


def register(_module: ModuleType) -> None:
    """Register the API name and make the four lookup functions include it."""
    tf_export.ESTIMATOR_API_NAME = NAME
    for version, suffix, registry in (
        ("v1", "_v1", tf_export.API_ATTRS_V1),
        ("v2", "", tf_export.API_ATTRS),
    ):
        entry = type(registry[tf_export.TENSORFLOW_API_NAME])
        registry[NAME] = entry(
            names=f"_estimator_api_names{suffix}",
            constants=f"_estimator_api_constants{suffix}",
        )
        _extend(f"get_{version}_names", registry[NAME].names)
        _extend(f"get_{version}_constants", registry[NAME].constants)


def _extend(function: str, attribute: str) -> None:
    """Make a lookup function of tf_export include an attribute of the symbols."""
    original = getattr(tf_export, function)

    @functools.wraps(original)
    def extended(symbol: Any) -> list[Any]:
        # `__dict__`, because the names of a base class do not count.
        return [*original(symbol), *getattr(symbol, "__dict__", {}).get(attribute, ())]

    setattr(tf_export, function, extended)
