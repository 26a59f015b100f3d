"""What the tables of `contrib.names` say about a name of `tf.contrib`.

Nothing is imported but the tables, so this needs no TensorFlow. Names have no leading
`tf.contrib.`. Programs spell some in several ways: tpu.python.tpu.tpu_config.TPUConfig
is tpu.TPUConfig.
"""

import difflib
import functools
import importlib
from collections.abc import Iterator
from typing import Any

# By name, because tf.contrib is of a higher layer.
_TABLES = "estimator_runtime.contrib.names"
_UNKNOWN = (
    "TensorFlow 2 has no tf.contrib, and TensorFlow 1 mode does not have this name; "
    "docs/contrib.md lists those that it has"
)

_TPU = "tensorflow.python.tpu"
_TPU_ESTIMATOR = "tensorflow_estimator.python.estimator.tpu"

# The private modules that have the code of modules of `tf.contrib` today, by the name
# of TensorFlow 1.15. The tables include them.
CONTRIB_MODULES: dict[str, str] = {
    "framework.nest": "tensorflow.python.util.nest",
    "framework.python.ops.audio_ops": "tensorflow.python.ops.gen_audio_ops",
    "tfprof.model_analyzer": "tensorflow.python.profiler.model_analyzer",
    "tfprof.tfprof_logger": "tensorflow.python.profiler.tfprof_logger",
    "tpu.proto.compilation_result_pb2": (
        "tensorflow.core.protobuf.tpu.compilation_result_pb2"
    ),
    "tpu.python.ops.tpu_ops": f"{_TPU}.ops.tpu_ops",
    "tpu.python.tpu.async_checkpoint": f"{_TPU}.async_checkpoint",
    "tpu.python.tpu.bfloat16": f"{_TPU}.bfloat16",
    "tpu.python.tpu.device_assignment": f"{_TPU}.device_assignment",
    "tpu.python.tpu.error_handling": f"{_TPU_ESTIMATOR}.error_handling",
    "tpu.python.tpu.functional": f"{_TPU}.functional",
    "tpu.python.tpu.session_support": f"{_TPU}.session_support",
    "tpu.python.tpu.tensor_tracer": f"{_TPU}.tensor_tracer",
    "tpu.python.tpu.topology": f"{_TPU}.topology",
    "tpu.python.tpu.tpu": f"{_TPU}.tpu",
    "tpu.python.tpu.tpu_config": f"{_TPU_ESTIMATOR}.tpu_config",
    "tpu.python.tpu.tpu_context": f"{_TPU_ESTIMATOR}.tpu_context",
    "tpu.python.tpu.tpu_estimator": f"{_TPU_ESTIMATOR}.tpu_estimator",
    "tpu.python.tpu.tpu_feed": f"{_TPU}.tpu_feed",
    "tpu.python.tpu.tpu_function": f"{_TPU}.tpu_function",
    "tpu.python.tpu.tpu_optimizer": f"{_TPU}.tpu_optimizer",
    "tpu.python.tpu.tpu_sharding": f"{_TPU}.tpu_sharding",
    "tpu.python.tpu.training_loop": f"{_TPU}.training_loop",
    "tpu.python.tpu.util": f"{_TPU_ESTIMATOR}.util",
}


def source(spelled: str) -> str | None:
    """Return where a name is now, as "module:attribute" or "module", or None."""
    return _tables().AVAILABLE.get(canonical(spelled))


def member(spelled: str) -> str | None:
    """Return where a name is that is not a module, as "module:attribute", or None.

    The same name may be a module and a member of the module that it is in:
    `framework.python.ops.arg_scope` is imported as a module, and its package has the
    function of that name.
    """
    parent, _, name = spelled.rpartition(".")
    tables = _tables()
    in_parent = f"{canonical(parent)}.{name}" if parent else name
    for dotted in (in_parent, canonical(spelled)):
        found = tables.AVAILABLE.get(dotted)
        if found is not None and ":" in found:
            return found
    return None


def is_module(spelled: str) -> bool:
    """Return whether a name is that of a module of `tf.contrib`.

    It is one if the tables have names below it, or if it stands for a whole module. All
    that TensorFlow 1 had directly below `tf.contrib` is one, also if it is missing: a
    program may import it and never use it.
    """
    dotted, found = canonical(spelled), source(spelled)
    if found is not None:
        return ":" not in found
    tables = _tables()
    return (
        spelled in tables.ALIASES
        or not _parents().isdisjoint({spelled, dotted})
        or (dotted in tables.MISSING and "." not in dotted)
    )


def in_whole_module(spelled: str) -> tuple[str, list[str]] | None:
    """Return a whole module and the path in it that a name leads to, if it exists.

    None is returned if no module stands for one that has the name, or if the name is
    known to be missing.
    """
    dotted = canonical(spelled)
    if dotted in _tables().MISSING:
        return None
    parts = dotted.split(".")
    for count in range(len(parts) - 1, 0, -1):
        found = _tables().AVAILABLE.get(".".join(parts[:count]))
        if found is not None and ":" not in found:
            return found, parts[count:]
    return None


def why_missing(spelled: str) -> str:
    """Return what became of a name that is not available, and what to use."""
    parts = canonical(spelled).split(".")
    for count in range(len(parts), 0, -1):
        text = _tables().MISSING.get(".".join(parts[:count]))
        if text is not None:
            return text
    owner, _, name = spelled.rpartition(".")
    for similar in difflib.get_close_matches(name, children(owner), n=1, cutoff=0.8):
        found = ".".join(filter(None, [owner, similar]))
        return f"did you mean tf.contrib.{found}?"
    return _UNKNOWN


def children(spelled: str) -> Iterator[str]:
    """Yield the names directly below a module, in order; "" is `tf.contrib` itself."""
    prefix = f"{canonical(spelled)}." if spelled else ""
    yield from sorted(
        {
            name.removeprefix(prefix).partition(".")[0]
            for table in (_tables().AVAILABLE, _tables().ALIASES)
            for name in table
            if name.startswith(prefix)
        }
    )


def canonical(spelled: str) -> str:
    """Return the name that the tables have for one.

    The longest part of it that the tables know decides, as an alias or as itself.
    """
    parts = spelled.split(".")
    for count in range(len(parts), 0, -1):
        known = ".".join(parts[:count])
        if known in _tables().AVAILABLE:
            return spelled
        target = _tables().ALIASES.get(known)
        if target is not None:
            return ".".join([target, *parts[count:]])
    return spelled


def _tables() -> Any:
    return importlib.import_module(_TABLES)


@functools.cache
def _parents() -> frozenset[str]:
    """Return the names that have other names of the tables below them."""
    tables = _tables()
    return frozenset(
        name.rsplit(".", count)[0]
        for table in (tables.AVAILABLE, tables.ALIASES, tables.MISSING)
        for name in table
        for count in range(1, name.count(".") + 1)
    )
