"""TensorFlow's export registry knows "estimator" again (removed in 2.16).

The frozen package decorates its classes with `estimator_export`, a subclass of
TensorFlow's `api_export`, at import.
"""

from tensorflow.python.util import tf_export

NAME = "estimator"


def register(_module):
    """Register the API name and make the four look-up functions include it."""
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


def _add(registry, suffix):
    entry = type(registry[tf_export.TENSORFLOW_API_NAME])
    registry[NAME] = entry(
        names=f"_estimator_api_names{suffix}",
        constants=f"_estimator_api_constants{suffix}",
    )


def _extend(function, attribute):
    original = getattr(tf_export, function)

    def extended(symbol):
        # Only what the symbol itself was exported as, not what its base was.
        return [*original(symbol), *getattr(symbol, "__dict__", {}).get(attribute, ())]

    extended.__doc__ = original.__doc__
    setattr(tf_export, function, extended)
