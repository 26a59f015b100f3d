"""The index of a checkpoint: what its `.data` files must hold, and whether they do."""

import os
import re
from collections.abc import Iterator
from typing import Any

from estimator_runtime.checkpoint.tensor_bundle import proto, reading
from estimator_runtime.checkpoint.tensor_bundle.table import TableError, read_table

# Stands for the number of a shard in the path of a checkpoint of the V1 format.
V1_SHARDS = "-?????-of-"
_MOST_SHARDS = 100_000  # file names have five digits for the number
_CHUNK_BYTES = 16 << 20
_MOST_BYTES = 256 << 20  # more than the index of a million values has


def _entries(prefix: str) -> tuple[int, Iterator[tuple[bytes, Any]]]:
    """Read an index; return the number of `.data` files, and (key, BundleEntryProto).

    Raises:
        TableError: If the index is damaged, or was not written by a Saver; also while
            you iterate.
        FileNotFoundError: If it is missing.
        OSError: If it cannot be read.
    """
    entries = read_table(reading.content(f"{prefix}.index", _MOST_BYTES))
    if not entries or entries[0][0] != b"":
        raise TableError("has no header")
    count = proto.parse("BundleHeaderProto", entries[0][1]).num_shards
    if not 0 < count < _MOST_SHARDS:
        raise TableError(f"names {count} .data files")
    return count, (
        (key, proto.parse("BundleEntryProto", value)) for key, value in entries[1:]
    )


def shard_bytes(prefix: str) -> list[int]:
    """Return the least size of each `.data` file of a checkpoint, in bytes.

    Raises:
        TableError, FileNotFoundError, OSError: If the index cannot be read.
    """
    count, entries = _entries(prefix)
    sizes = [0] * count
    for _, entry in entries:
        if not 0 <= entry.shard_id < count:
            raise TableError(f"names .data file {entry.shard_id} of {count}")
        sizes[entry.shard_id] = max(sizes[entry.shard_id], entry.offset + entry.size)
    return sizes


def shard_path(prefix: str, shard: int, count: int) -> str:
    """Return the path of the `.data` file number `shard` of `count`."""
    return f"{prefix}.data-{shard:05d}-of-{count:05d}"


def values(prefix: str) -> Iterator[tuple[bytes, Any, str]]:
    """Read the index of a good checkpoint, value by value.

    Yields:
        (key, BundleEntryProto, path of the `.data` file) of each value. Nothing for a
        checkpoint of the V1 format.

    Raises:
        OSError, TableError: If the index cannot be read.
    """
    if not os.path.exists(f"{prefix}.index") and v1_files(prefix):
        return
    count, entries = _entries(prefix)
    for key, entry in entries:
        yield key, entry, shard_path(prefix, entry.shard_id, count)


def chunks(path: str, entry: Any) -> Iterator[bytes]:
    """Read the bytes of a value in parts.

    Args:
        path: The `.data` file.
        entry: The BundleEntryProto of the value.

    Yields:
        The bytes, in order. They are incomplete if the file ends too early.
    """
    position, left = entry.offset, entry.size
    while left and (chunk := reading.part(path, position, min(left, _CHUNK_BYTES))):
        position += len(chunk)
        left -= len(chunk)
        yield chunk


def v1_files(prefix: str) -> list[str]:
    """Return the files of a checkpoint of TensorFlow's V1 format.

    These files have no suffix.

    Args:
        prefix: Path of the checkpoint. A checkpoint of several shards has the path that
            TensorFlow gives it, which ends with, for example, "-?????-of-00002".

    Raises:
        OSError: If the folder cannot be listed.
    """
    name, mark, count = prefix.rpartition(V1_SHARDS)
    folder, name = os.path.split(name if mark else prefix)
    if re.search(r"\.(index|meta|data-\d{5}-of-\d{5})$", name):
        return []  # a file of a checkpoint, not a checkpoint
    pattern = re.escape(name) + (rf"-.{{5}}-of-{re.escape(count)}" if mark else "")
    paths = [
        os.path.join(folder, each)
        for each in reading.names(folder)
        if re.fullmatch(pattern, each)
    ]
    return sorted(path for path in paths if mark or not os.path.isdir(path))


def problem(prefix: str) -> str | None:
    """Return what is wrong with a checkpoint, in a few words, or None.

    All bytes of the index are checked. Of each shard, only the presence and the size
    are checked, so that the time does not grow with the size of the model. The
    checksums of the values are checked when they are read. A checkpoint of the V1
    format is left to TensorFlow.

    Args:
        prefix: Path without suffix.

    Raises:
        UnreadableError: If a file cannot be read. The checkpoint may still be good.
    """
    try:
        return _problem(prefix)
    except OSError as error:
        raise reading.UnreadableError(error) from error


def _problem(prefix: str) -> str | None:
    try:
        sizes = shard_bytes(prefix)
    except (FileNotFoundError, NotADirectoryError):
        return None if v1_files(prefix) else "its .index file is missing"
    except TableError as error:
        return f"its .index file {error}"
    for shard, expected in enumerate(sizes):
        path = shard_path(prefix, shard, len(sizes))
        name = os.path.basename(path)
        try:
            size = reading.size(path)
        except TableError as error:
            return f"{name} {error}"
        except (FileNotFoundError, NotADirectoryError):
            return f"{name} is missing"
        if size < expected:
            return f"{name} has {size} bytes of {expected}"
    return None
