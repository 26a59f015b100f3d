"""`tf.io.write_graph` with a protobuf that no longer takes `float_format`.

Protobuf 7 dropped the argument. TensorFlow 2.20.0 still passes it, empty, and does not
keep protobuf 7 away; each training writes its graph, so none would start.
"""

import inspect
import types

from google.protobuf import text_format


def lacks_float_format():
    """Tell whether the installed protobuf refuses `float_format`."""
    return (
        "float_format" not in inspect.signature(text_format.MessageToString).parameters
    )


def drop_float_format(_module):
    """Give the one TensorFlow module that passes it a MessageToString that takes it.

    Protobuf's own module is left alone: it belongs to all of the program.
    """
    from tensorflow.python.framework import graph_io

    def message_to_string(message, *args, float_format=None, **kwargs):
        # Empty or None: as many digits as protobuf writes anyway.
        if float_format:
            kwargs["float_format"] = float_format
        return text_format.MessageToString(message, *args, **kwargs)

    graph_io.text_format = types.SimpleNamespace(
        **{**vars(text_format), "MessageToString": message_to_string}
    )
