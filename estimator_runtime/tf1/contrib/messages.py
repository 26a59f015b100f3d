"""Messages of `tf.contrib`, whose generated code today's protobuf refuses."""

import ast
import types
from collections.abc import Iterator

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import builder


def define(module: types.ModuleType, source: bytes) -> None:
    """Set the classes of a `_pb2` module, from the description in its source.

    Args:
        module: The module, whose builtins import TensorFlow's modules.
        source: The generated code.
    """
    tree = ast.parse(source)
    # The messages that these are made of have to be known first.
    imports: list[ast.stmt] = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "tensorflow" in ast.unparse(node)
    ]
    exec(compile(ast.Module(imports, []), module.__name__, "exec"), vars(module))
    serialized = next(_descriptions(tree))
    pool = descriptor_pool.Default()
    try:
        file = pool.AddSerializedFile(serialized)
    except TypeError:  # TensorFlow has the same file
        described = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        file = pool.FindFileByName(described.name)
    vars(module)["DESCRIPTOR"] = file
    builder.BuildMessageAndEnumDescriptors(file, vars(module))
    builder.BuildTopDescriptorsAndMessages(file, module.__name__, vars(module))


def _descriptions(tree: ast.AST) -> Iterator[bytes]:
    """Yield the serialized description of the file, which is written as a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            value = node.value
            text = ast.literal_eval(
                value.args[0] if isinstance(value, ast.Call) else value
            )
            yield text.encode("latin1") if isinstance(text, str) else text
