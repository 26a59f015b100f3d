"""What a checkpoint's `.index` says is in its `.data` files, and whether it is."""

import contextlib
import dataclasses
import os
import re
import struct
from collections.abc import Iterable

from estimator_runtime.checkpoint import reading
from estimator_runtime.checkpoint.message import (
    NUM_SHARDS,
    OFFSET,
    SHARD_ID,
    SIZE,
    fields,
)
from estimator_runtime.checkpoint.table import TableError, read_table

# In the path of a checkpoint of the V1 format, for the number of a shard.
V1_SHARDS = "-?????-of-"
_MOST_SHARDS = 100_000  # five digits in a file's name
_CHUNK_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bundle:
    """The shards of a checkpoint, and what each must at least hold.

    Attributes:
        names: Names of the tensors, in order; those of slices are encoded.
        shard_bytes: Least size of each `.data` file, in bytes.
    """

    names: tuple[bytes, ...]
    shard_bytes: tuple[int, ...]


def read_bundle(prefix):
    """Read the index of the checkpoint `prefix`.

    Raises:
        TableError: If it is not what a Saver has written.
        FileNotFoundError: If it is missing.
        OSError: If it cannot be read.
    """
    entries = read_table(reading.content(f"{prefix}.index"))
    if not entries or entries[0][0] != b"":
        raise TableError("has no header")
    try:
        return _bundle(entries)
    except (IndexError, struct.error) as error:
        raise TableError("has an entry that cannot be read") from error


def shard_path(prefix, shard, count):
    """Name the `.data` file number `shard` of `count`."""
    return f"{prefix}.data-{shard:05d}-of-{count:05d}"


def values(prefix):
    """Read the index of a checkpoint that is good, value by value.

    Yields:
        (key, the fields of the entry, path of the `.data` file) of each.

    Raises:
        OSError, TableError, IndexError: If it cannot be read.
    """
    header, *entries = read_table(reading.content(f"{prefix}.index"))
    count = dict(fields(header[1])).get(NUM_SHARDS, 1)
    for key, value in entries:
        entry = dict(fields(value))
        yield key, entry, shard_path(prefix, entry.get(SHARD_ID, 0), count)


def chunks(path, entry):
    """Yield the bytes of a value, in parts; fewer than it has, if the file ends."""
    position, left = entry.get(OFFSET, 0), entry.get(SIZE, 0)
    while left and (chunk := reading.part(path, position, min(left, _CHUNK_BYTES))):
        position += len(chunk)
        left -= len(chunk)
        yield chunk


def v1_files(prefix):
    """Return the files of a checkpoint of TensorFlow's V1 format: they have no suffix.

    Args:
        prefix: Its path; for one of several shards as TensorFlow has it, with
            "-?????-of-00002" at the end.

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


def problem(prefix, data_prefix=None):
    """Return what is wrong with a checkpoint, in a few words; None if nothing shows.

    The index is checked to the last bit, each shard for its presence and size: the
    time that takes does not grow with the size of the model. The checksums of the
    values are checked by whoever reads them. One of the V1 format is left to
    TensorFlow.

    Args:
        prefix: Path without suffix.
        data_prefix: Where those shards are that are not there; None if nowhere else.

    Raises:
        UnreadableError: If a file cannot be read, which says nothing about it.
    """
    try:
        return _problem(prefix, data_prefix)
    except OSError as error:
        raise reading.UnreadableError(error) from error


def _problem(prefix: str, data_prefix: str | None) -> str | None:
    try:
        bundle = read_bundle(prefix)
    except (FileNotFoundError, NotADirectoryError):
        return None if v1_files(prefix) else "its .index file is missing"
    except TableError as error:
        return f"its .index file {error}"
    count = len(bundle.shard_bytes)
    for shard, expected in enumerate(bundle.shard_bytes):
        paths = [
            shard_path(each, shard, count)
            for each in (prefix, data_prefix)
            if each is not None
        ]
        name = os.path.basename(paths[0])
        try:
            size = _size_of_first(paths)
        except TableError as error:
            return f"{name} {error}"
        if size is None:
            return f"{name} is missing"
        if size < expected:
            return f"{name} has {size} bytes of {expected}"
    return None


def _size_of_first(paths: Iterable[str]) -> int | None:
    """Return the size of the first of these files that is there, or None."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return reading.size(path)
    return None


def _bundle(entries):
    count = dict(fields(entries[0][1])).get(NUM_SHARDS, 0)
    if not 0 < count < _MOST_SHARDS:
        raise TableError(f"speaks of {count} .data files")
    sizes = [0] * count
    for _, value in entries[1:]:
        entry = dict(fields(value))
        shard = entry.get(SHARD_ID, 0)
        if shard >= count:
            raise TableError(f"speaks of .data file {shard} of {count}")
        end = entry.get(OFFSET, 0) + entry.get(SIZE, 0)
        sizes[shard] = max(sizes[shard], end)
    names = tuple(name for name, _ in entries[1:])
    return Bundle(names=names, shard_bytes=tuple(sizes))
