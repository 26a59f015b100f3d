"""Patches for pandas 3 and protobuf 7, which TensorFlow does not know."""

import functools
import inspect
import types
from typing import Any

from google.protobuf import text_format

from estimator_runtime.tf_internals import versions


def is_pandas_3() -> bool:
    """Return whether the frozen package uses pandas 3 or newer."""
    from tensorflow_estimator.python.estimator.inputs.queues import feeding_functions

    return feeding_functions.HAS_PANDAS and versions.major(feeding_functions.pd) >= 3


def patch_queues(_module: types.ModuleType) -> None:
    """Make queues convert string columns and indexes to objects, as in pandas 2."""
    from tensorflow_estimator.python.estimator.inputs.queues import feeding_functions

    pandas, original = feeding_functions.pd, feeding_functions._enqueue_data

    @functools.wraps(original)
    def enqueue_data(data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, pandas.DataFrame):
            data = _with_objects(data, pandas.StringDtype)
        return original(data, *args, **kwargs)

    feeding_functions._enqueue_data = enqueue_data


def _with_objects(frame: Any, string_type: type) -> Any:
    """Return a copy of a DataFrame whose strings are objects."""
    texts = [
        name for name, dtype in frame.dtypes.items() if isinstance(dtype, string_type)
    ]
    # A missing text stays what it was in an object column, and feeding it is an error.
    frame = frame.astype(dict.fromkeys(texts, object))
    if isinstance(frame.index.dtype, string_type):
        frame.index = frame.index.astype(object)
    return frame


def lacks_float_format() -> bool:
    """Return whether the installed protobuf does not accept `float_format`."""
    return (
        "float_format" not in inspect.signature(text_format.MessageToString).parameters
    )


def drop_float_format(_module: types.ModuleType) -> None:
    """Make `MessageToString` accept `float_format` in TensorFlow's `graph_io`.

    It is the only module of TensorFlow that passes this argument. Protobuf's own
    module is not changed, because the whole program uses it.
    """
    from tensorflow.python.framework import graph_io

    def message_to_string(
        message: Any, *args: Any, float_format: str | None = None, **kwargs: Any
    ) -> str:
        # An empty format and None stand for as many digits as protobuf writes anyway.
        if float_format:
            kwargs["float_format"] = float_format
        return text_format.MessageToString(message, *args, **kwargs)

    graph_io.text_format = types.SimpleNamespace(
        **{**vars(text_format), "MessageToString": message_to_string}
    )
