"""Checkpoint files: find the checkpoints in a folder, and move or delete one."""

import dataclasses
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from estimator_runtime.checkpoint.store import durable
from estimator_runtime.checkpoint.tensor_bundle import index, reading
from estimator_runtime.errors import ConfigError

_CONTROLS = r"\x00-\x1f\x7f-\x9f"
# Files with these in their names are not ours: a terminal would obey what it is shown.
CONTROL = re.compile(f"[{_CONTROLS}]")
_FILE = re.compile(
    rf"(?P<name>[^{_CONTROLS}]+-(?P<step>\d+))"
    r"\.(?P<kind>index|meta|data-\d{5}-of-\d{5})"
)
_SUFFIX = re.compile(r"\.(index|meta|data-)")
_DAMAGED = "damaged"
# TensorFlow reads a path with one of these characters as a pattern, and restores or
# deletes each file that matches; see FileSystem::GetMatchingPaths in its core/platform.
PATTERN = re.compile(r"[*?\[\\]")

# What identifies the content of a file: its device, inode, size and modification time.
Identity = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint on the disk, complete or not.

    Attributes:
        prefix: Path without suffix, such as "/ckpt/model.ckpt-100".
        files: Paths of its files, sorted.
    """

    prefix: str
    files: tuple[str, ...]

    @property
    def step(self) -> int | None:
        """The number at the end of its name, or None."""
        return step_of(self.prefix)

    @property
    def has_index(self) -> bool:
        """Whether it has an index, which is the last of its files to appear."""
        return f"{self.prefix}.index" in self.files

    @property
    def is_v1(self) -> bool:
        """Whether it is in TensorFlow's V1 format, whose files have no suffix."""
        suffixes = [os.path.splitext(path)[1] for path in self.files]
        return not self.has_index and not all(map(_SUFFIX.match, suffixes))

    @property
    def bytes(self) -> int:
        """Size of all files, in bytes, except those deleted meanwhile."""
        return sum(_stat(path, "st_size") for path in self.files)

    @property
    def saved_at(self) -> float:
        """Time of its newest file, in seconds since 1970."""
        return max((_stat(path, "st_mtime") for path in self.files), default=0.0)

    def problem(self) -> str | None:
        """Return what is wrong with it, or None; see `index.problem`."""
        return index.problem(self.prefix)


def identity(path: str) -> Identity | None:
    """Return a value that changes when a file is replaced or written to.

    It stays if a write in place keeps the size and then sets the old modification time.

    Returns:
        None if there is no such file on a local disk.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def index_identity(prefix: str) -> Identity | None:
    """Return a value that changes when a checkpoint is replaced; see `identity`."""
    return identity(f"{prefix}.index")


def step_of(prefix: str) -> int | None:
    """Return the number at the end of a checkpoint's name, or None."""
    digits = re.search(r"-(\d+)\Z", _without_shards(prefix))
    return int(digits.group(1)) if digits else None


def step_in(prefix: str) -> int | None:
    """Return the global step that a checkpoint holds; that of its name if it has none.

    With parameter servers, workers train on between the two.

    Raises:
        OSError, TableError: If the checkpoint cannot be read.
    """
    for key, entry, path in index.values(prefix):
        if key == b"global_step":
            return int.from_bytes(b"".join(index.chunks(path, entry)), "little")
    return step_of(prefix)


def series_of(prefix: str) -> str:
    """Return a checkpoint's name without its folder and the number at its end."""
    return re.sub(r"-\d+\Z", "", os.path.basename(_without_shards(prefix)))


def find(folder: str) -> list[Checkpoint]:
    """Return the checkpoints in a folder whose names have a number, sorted by step.

    The name of a file tells which checkpoint it belongs to: NAME-STEP.index and
    NAME-STEP.data-I-of-N, or in the V1 format NAME-STEP with a .meta file beside it. A
    .meta file alone is not a checkpoint.

    Raises:
        OSError: If the folder cannot be listed.
    """
    groups: dict[str, list[str]] = {}
    names = os.listdir(folder)
    for name in names:
        match = _FILE.fullmatch(name)
        if match:
            groups.setdefault(match["name"], []).append(os.path.join(folder, name))
    found = []
    for name, paths in groups.items():
        prefix = os.path.join(folder, name)
        if any(not path.endswith(".meta") for path in paths):
            found.append(Checkpoint(prefix=prefix, files=tuple(sorted(paths))))
            continue
        shards = map(_v1_shard_of(name).fullmatch, names)
        counts = {shard[1] for shard in shards if shard}
        patterns = [f"{prefix}{index.V1_SHARDS}{count}" for count in sorted(counts)]
        found += [each for each in map(at, (prefix, *patterns)) if each.is_v1]
    numbered = [each for each in found if each.step is not None]
    return sorted(numbered, key=lambda each: (each.step, each.prefix))


def at(prefix: str) -> Checkpoint:
    """Return the checkpoint of a name, with or without a number.

    If there is none, the result has no files.

    Raises:
        OSError: If the folder cannot be listed.
    """
    folder, name = os.path.split(_without_shards(prefix))
    kinds = re.compile(re.escape(name) + r"\.(index|meta|data-\d{5}-of-\d{5})")
    names = reading.names(folder)
    files = [os.path.join(folder, n) for n in names if kinds.fullmatch(n)]
    if all(path.endswith(".meta") for path in files):
        files += index.v1_files(prefix)
    return Checkpoint(prefix=prefix, files=tuple(sorted(files)))


def is_in(folder: str, prefix: str) -> bool:
    """Return whether a checkpoint is in a folder, even if their paths differ."""
    return os.path.realpath(os.path.dirname(prefix)) == os.path.realpath(folder)


def here(folder: str, prefix: str) -> str:
    """Return a checkpoint's path in a folder, or `prefix` if it is not there.

    After a folder was copied or moved, its state file may still name the old place. A
    checkpoint in the folder takes precedence over one elsewhere.
    """
    inside = os.path.join(folder, os.path.basename(prefix))
    return inside if is_in(folder, prefix) or at(inside).files else prefix


def set_aside(checkpoint: Checkpoint) -> str:
    """Move a checkpoint to a folder `damaged` beside it, without overwriting anything.

    Returns:
        Path of the folder that it is in now.

    Raises:
        OSError: If it cannot be moved.
    """
    folder = os.path.dirname(checkpoint.prefix)
    target, number = os.path.join(folder, _DAMAGED), 1
    name = os.path.basename(checkpoint.prefix)
    # A symbolic link would lead somewhere else.
    while os.path.islink(target) or at(os.path.join(target, name)).files:
        number += 1
        target = os.path.join(folder, f"{_DAMAGED}-{number}")
    os.makedirs(target, exist_ok=True)
    for path in index_first(checkpoint.files):
        os.rename(path, os.path.join(target, os.path.basename(path)))
    return target


def delete(checkpoint: Checkpoint) -> None:
    """Delete a checkpoint's files, the index first.

    If this is interrupted, the files that are left are not taken for a checkpoint. In
    the V1 format, nothing distinguishes the files from others, so they stay.
    """
    for path in () if checkpoint.is_v1 else index_first(checkpoint.files):
        durable.remove_if_there(path)


def index_first(paths: Iterable[str]) -> list[str]:
    """Return a checkpoint's files in the order in which to delete or move them.

    Once the index is gone, the files that are left are not taken for a checkpoint. The
    data is last, because `find` does not find a .meta file alone.
    """
    first = {".index": 0, ".meta": 1}
    return sorted(paths, key=lambda path: first.get(os.path.splitext(path)[1], 2))


def _without_shards(prefix: str) -> str:
    return re.sub(r"-\?{5}-of-\d+$", "", prefix)


def _v1_shard_of(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name) + r"-\d{5}-of-(\d{5})")


def _stat(path: str, field: str) -> Any:
    """Return a field of `os.stat`, or 0 if the file does not exist."""
    try:
        return getattr(os.stat(path), field)
    except FileNotFoundError:
        return 0


def check_model_dir(argument: str, folder: str | bytes) -> None:
    """Raise if TensorFlow could not find the checkpoints that it saves in a folder.

    Args:
        argument: Name of the argument with the folder, for the message.
        folder: Path of the folder; it need not exist.

    Raises:
        ConfigError: If the path is not UTF-8, or contains characters of a pattern.
    """
    path = os.fsdecode(folder)
    check_utf8(argument, path)
    found = PATTERN.search(path)
    if found and "://" not in path:
        raise ConfigError(
            f"{argument} {path!r} has {found[0]!r} in it, which TensorFlow reads as "
            "part of a pattern: it would not find its checkpoints again, or would "
            "delete those in folders that match; give a folder whose path has none of "
            "* ? [ \\"
        )


def check_utf8(argument: str, path: str) -> None:
    """Raise a ConfigError about an argument if its path is not UTF-8.

    TensorFlow takes no other path.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        remedy = "give a folder whose path is UTF-8"
        if encoding != "utf-8":
            remedy = f"this process takes paths for {encoding}: set PYTHONUTF8=1"
        raise ConfigError(
            f"{argument} {path!r} is not UTF-8, and TensorFlow takes no other path; "
            f"{remedy}"
        ) from None
