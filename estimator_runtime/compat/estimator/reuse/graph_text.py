"""A patch that prints only those nodes of a graph that its file does not have already.

Each `Estimator.train` writes the graph to `graph.pbtxt`. In a loop of `train` and
`evaluate` it is nearly the same graph again: the functions of `tf.cond` have new names,
and so have the nodes that call them. Protobuf prints texts in Python, which takes a
seventh of a short call of `train`. The text of a graph is that of its nodes, one after
the other, and of its other fields. So the text of a node that was printed before is
copied from the file, unless the file has changed.
"""

import collections
import functools
import hashlib
import inspect
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import graph_io
from tensorflow.python.lib.io import file_io
from tensorflow.python.training import training_util

from estimator_runtime.checkpoint.tensor_bundle.regular_files import opener
from estimator_runtime.compat import patch

_MAX_FILES = 8
# What `write_graph` itself passes on some TensorFlows, where protobuf would else print
# other digits.
_FORMAT: dict[str, Any] = (
    {"float_format": ""}
    if "float_format=''" in inspect.getsource(graph_io.write_graph)
    else {}
)


class _Printed(NamedTuple):
    """A file that this process has written.

    Attributes:
        digest: Digest of its content.
        places: Digest of a node, serialized, to the start and end of its text.
    """

    digest: bytes
    places: dict[bytes, tuple[int, int]]


# By path; the one written last is at the end.
_files: collections.OrderedDict[str, _Printed] = collections.OrderedDict()
_lock = threading.Lock()


def patch_write_graph(_module: ModuleType) -> None:
    """Make the hooks that save checkpoints copy the texts of nodes."""
    training_util.write_graph = _copying(training_util.write_graph)


def _copying(original: Callable[..., str]) -> Callable[..., str]:
    """Wrap `write_graph`. It writes the same files."""
    bind = patch.binder(original)

    @functools.wraps(original)
    def write_graph(*args: Any, **kwargs: Any) -> str:
        call = bind(*args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        graph = given["graph_or_graph_def"]
        path = os.path.join(given["logdir"], given["name"])
        is_text = given["as_text"] and type(graph) is graph_pb2.GraphDef
        # On other machines, TensorFlow changes the graph before it prints it.
        if not is_text or "://" in path or sys.byteorder != "little":
            return original(*args, **kwargs)
        file_io.recursive_create_dir(given["logdir"])
        text, places = _text_of(graph, path)
        file_io.atomic_write_string_to_file(path, text)
        with _lock:
            _files[path] = _Printed(_digest(text), places)
            _files.move_to_end(path)
            while len(_files) > _MAX_FILES:
                _files.popitem(last=False)
        return path

    return write_graph


def _text_of(
    graph: graph_pb2.GraphDef, path: str
) -> tuple[bytes, dict[bytes, tuple[int, int]]]:
    """Return the text of a graph, and the places of its nodes as in `_Printed`.

    Args:
        graph: The graph.
        path: The file that may have the texts of its nodes.
    """
    content, known = _read(path)
    texts: list[bytes] = []
    places: dict[bytes, tuple[int, int]] = {}
    size = 0
    for node in graph.node:
        key = _digest(node.SerializeToString(deterministic=True))
        if key in known:
            start, end = known[key]
            text = content[start:end]
        else:
            text = _printed(graph_pb2.GraphDef(node=[node]))
        places[key] = size, size + len(text)
        texts.append(text)
        size += len(text)
    rest = graph_pb2.GraphDef()
    for field, value in graph.ListFields():
        if field.name != "node":
            _set(rest, field.name, value)
    return b"".join([*texts, _printed(rest)]), places


def _set(message: Any, name: str, value: Any) -> None:
    """Set a field of a message, of whatever kind."""
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def _printed(message: graph_pb2.GraphDef) -> bytes:
    return graph_io.text_format.MessageToString(message, **_FORMAT).encode()


def _read(path: str) -> tuple[bytes, dict[bytes, tuple[int, int]]]:
    """Return the content of a file and the places in it, if it is as it was written."""
    with _lock:
        file = _files.get(path)
    if file is not None:
        try:
            with open(path, "rb", opener=opener) as opened:
                content = opened.read()
        except OSError:
            return b"", {}
        if _digest(content) == file.digest:
            return content, file.places
    return b"", {}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
