"""The API name "estimator" in TensorFlow's export registry (removed in 2.16).

At import, the frozen package decorates its classes with `estimator_export`, a subclass
of TensorFlow's `api_export`.
"""

from types import ModuleType
from typing import Any

from tensorflow.python.util import tf_export

NAME = "estimator"


def register(_module: ModuleType) -> None:
    """Register the API name and make the four lookup functions include it."""
    tf_export.ESTIMATOR_API_NAME = NAME
    _add(tf_export.API_ATTRS, suffix="")
    _add(tf_export.API_ATTRS_V1, suffix="_v1")
    for function, attributes in (
        ("get_v1_names", tf_export.API_ATTRS_V1),
        ("get_v2_names", tf_export.API_ATTRS),
    ):
        _extend(function, attributes[NAME].names)
    for function, attributes in (
        ("get_v1_constants", tf_export.API_ATTRS_V1),
        ("get_v2_constants", tf_export.API_ATTRS),
    ):
        _extend(function, attributes[NAME].constants)


def _add(registry: dict[str, Any], suffix: str) -> None:
    """Add the API name to one of the two registries of attributes."""
    entry = type(registry[tf_export.TENSORFLOW_API_NAME])
    registry[NAME] = entry(
        names=f"_estimator_api_names{suffix}",
        constants=f"_estimator_api_constants{suffix}",
    )


def _extend(function: str, attribute: str) -> None:
    """Make a lookup function of tf_export include an attribute of the symbols.

    Args:
        function: Name of the lookup function.
        attribute: Name of the attribute that holds the estimator names.
    """
    original = getattr(tf_export, function)

    def extended(symbol: Any) -> list[Any]:
        # `__dict__`, because the names of a base class do not count.
        return [*original(symbol), *getattr(symbol, "__dict__", {}).get(attribute, ())]

    extended.__doc__ = original.__doc__
    setattr(tf_export, function, extended)
