"""Texts of pandas 3 in `tf.compat.v1.estimator.inputs.pandas_input_fn`.

Columns of texts had numpy's type of any object up to pandas 2. From pandas 3 on they
have one of pandas's own, for which TensorFlow knows no equal.
"""

import functools

from estimator_runtime.compat import versions


def has_strings_of_its_own():
    """Tell whether the pandas that the frozen package found is 3 or newer."""
    from tensorflow_estimator.python.estimator.inputs.queues import feeding_functions

    return feeding_functions.HAS_PANDAS and versions.major(feeding_functions.pd) >= 3


def patch_queues(_module):
    """Feed texts as the objects that they were up to pandas 2, index and columns."""
    from tensorflow_estimator.python.estimator.inputs.queues import feeding_functions

    pandas, original = feeding_functions.pd, feeding_functions._enqueue_data

    @functools.wraps(original)
    def enqueue_data(data, *args, **kwargs):
        if isinstance(data, pandas.DataFrame):
            data = _with_objects(data, pandas.StringDtype)
        return original(data, *args, **kwargs)

    feeding_functions._enqueue_data = enqueue_data


def _with_objects(frame, string_type):
    texts = [
        name for name, dtype in frame.dtypes.items() if isinstance(dtype, string_type)
    ]
    # A missing text stays what it was in an object column: refused as it is fed.
    frame = frame.astype(dict.fromkeys(texts, object))
    if isinstance(frame.index.dtype, string_type):
        frame.index = frame.index.astype(object)
    return frame
