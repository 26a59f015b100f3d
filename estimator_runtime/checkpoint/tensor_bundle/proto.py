"""The protocol buffers in the files of a checkpoint, without TensorFlow's classes."""

import functools
from typing import Any

from estimator_runtime.checkpoint.tensor_bundle.table import TableError

# The fields that are used here, as in TensorFlow's tensor_bundle.proto,
# tensor_shape.proto and checkpoint_state.proto: name, number and type. "*" marks a
# repeated field. An enum is read as the number that it is.
_MESSAGES = {
    "BundleHeaderProto": (("num_shards", 1, "INT32"),),
    "BundleEntryProto": (
        ("dtype", 1, "INT32"),
        ("shape", 2, "TensorShapeProto"),
        ("shard_id", 3, "INT32"),
        ("offset", 4, "INT64"),
        ("size", 5, "INT64"),
        ("crc32c", 6, "FIXED32"),
    ),
    "TensorShapeProto": (("dim", 2, "*Dim"),),
    "Dim": (("size", 1, "INT64"),),
    "CheckpointState": (
        ("model_checkpoint_path", 1, "STRING"),
        ("all_model_checkpoint_paths", 2, "*STRING"),
        ("all_model_checkpoint_timestamps", 3, "*DOUBLE"),
        ("last_preserved_timestamp", 4, "DOUBLE"),
    ),
}


@functools.cache
def message_class(name: str) -> Any:
    """Return the class of a message in `_MESSAGES`.

    The import of protobuf takes 40 ms, so it is delayed until a file is read.
    """
    from google.protobuf import descriptor_pb2, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="checkpoint.proto", package="tensorflow", syntax="proto3"
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, number, kind in fields:
            is_repeated, kind = kind.startswith("*"), kind.lstrip("*")
            is_message = kind in _MESSAGES
            message.field.add(
                name=field_name,
                number=number,
                label=field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL,
                type=field.Type.Value(f"TYPE_{'MESSAGE' if is_message else kind}"),
                type_name=f".tensorflow.{kind}" if is_message else None,
            )
    # In a separate pool: the default one may have TensorFlow's messages.
    return message_factory.GetMessages([file])[f"tensorflow.{name}"]


def parse(name: str, content: bytes) -> Any:
    """Return a message in the index of a checkpoint.

    Raises:
        TableError: If the content is not such a message.
    """
    from google.protobuf.message import DecodeError

    try:
        return message_class(name).FromString(content)
    except DecodeError as error:
        raise TableError("has an entry that cannot be read") from error
