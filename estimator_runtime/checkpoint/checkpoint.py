"""A checkpoint: the files of one name in one folder. Read this module first.

TensorFlow saves the checkpoint of step 100 as

* `model.ckpt-100.data-00000-of-00001`, ...: the values, in one or more files;
* `model.ckpt-100.index`: the name, place, size and checksum of each value;
* `model.ckpt-100.meta`: the graph, which a restore does not need.

The state file `checkpoint` beside them names the newest checkpoint and those before it.
A checkpoint exists if it has an index, which is the last file to get its name and the
first to be deleted. It is whole if all the data that the index names is there, and it
is committed if the state file names it.
"""

import dataclasses
import os
import re
from collections.abc import Iterable
from typing import Any

from estimator_runtime.checkpoint.store import durable
from estimator_runtime.checkpoint.tensor_bundle import index, reading
from estimator_runtime.config.paths import step_of, without_shards

_CONTROLS = r"\x00-\x1f\x7f-\x9f"
# Files with these in their names are not ours: a terminal would obey what it is shown.
CONTROL = re.compile(f"[{_CONTROLS}]")
_KIND = r"\.(?P<kind>index|meta|data-\d{5}-of-\d{5})"
_FILE = re.compile(rf"(?P<name>[^{_CONTROLS}]+-\d+){_KIND}")
_SUFFIX = re.compile(r"\.(index|meta|data-)")
_DAMAGED = "damaged"

# What identifies the content of a file: its device, inode, size and modification time.
Identity = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint on the disk, whole or not.

    Attributes:
        prefix: Path without suffix, such as "/ckpt/model.ckpt-100".
        files: Paths of its files, sorted.
    """

    prefix: str
    files: tuple[str, ...]

    @classmethod
    def at(cls, prefix: str) -> "Checkpoint":
        """Return the checkpoint of a path, with or without a number.

        If there is none, the result has no files.

        Raises:
            OSError: If the folder cannot be listed.
        """
        folder, name = os.path.split(without_shards(prefix))
        pattern = re.compile(re.escape(name) + _KIND)
        names = reading.names(folder)
        files = [os.path.join(folder, n) for n in names if pattern.fullmatch(n)]
        if all(path.endswith(".meta") for path in files):
            files += index.v1_files(prefix)
        return cls(prefix=prefix, files=tuple(sorted(files)))

    @property
    def name(self) -> str:
        """Its name, such as "model.ckpt-100"."""
        return os.path.basename(self.prefix)

    @property
    def step(self) -> int | None:
        """The number at the end of its name, or None."""
        return step_of(self.prefix)

    @property
    def series(self) -> str:
        """Its name without the number, such as "model.ckpt"."""
        return series_of(self.prefix)

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
    def index_first(self) -> list[str]:
        """Its files in the order in which to delete or move them.

        Once the index is gone, the files that are left are not taken for a checkpoint.
        The data is last, because a .meta file alone is not found.
        """
        first = {".index": 0, ".meta": 1}
        return sorted(self.files, key=lambda p: first.get(os.path.splitext(p)[1], 2))

    @property
    def bytes(self) -> int:
        """Size of all files, in bytes, except those deleted meanwhile."""
        return sum(_stat(path, "st_size") for path in self.files)

    @property
    def saved_at(self) -> float:
        """Time of its newest file, in seconds since 1970."""
        return max((_stat(path, "st_mtime") for path in self.files), default=0.0)

    def problem(self) -> str | None:
        """Return why it is not whole, or None; see `index.problem`."""
        return index.problem(self.prefix)

    def delete(self) -> None:
        """Delete its files, the index first.

        In the V1 format, nothing distinguishes the files from others, so they stay.
        """
        for path in () if self.is_v1 else self.index_first:
            durable.remove_if_there(path)

    def set_aside(self) -> str:
        """Move it to a folder `damaged` beside it, without overwriting anything.

        Returns:
            Path of the folder that it is in now.

        Raises:
            OSError: If it cannot be moved.
        """
        folder = os.path.dirname(self.prefix)
        target, number = os.path.join(folder, _DAMAGED), 1
        # A symbolic link would lead somewhere else.
        while os.path.islink(target) or self.at(os.path.join(target, self.name)).files:
            number += 1
            target = os.path.join(folder, f"{_DAMAGED}-{number}")
        os.makedirs(target, exist_ok=True)
        for path in self.index_first:
            os.rename(path, os.path.join(target, os.path.basename(path)))
        return target


def checkpoints_in(folder: str) -> list[Checkpoint]:
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
        else:
            found += _v1_checkpoints(prefix, names)
    numbered = [each for each in found if each.step is not None]
    return sorted(numbered, key=lambda each: (each.step, each.prefix))


def series_of(prefix: str) -> str:
    """Return a checkpoint's name without its folder and the number at its end."""
    return re.sub(r"-\d+\Z", "", os.path.basename(without_shards(prefix)))


def is_in(folder: str, prefix: str) -> bool:
    """Return whether a checkpoint is in a folder, even if their paths differ."""
    return os.path.realpath(os.path.dirname(prefix)) == os.path.realpath(folder)


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


def _v1_checkpoints(prefix: str, names: Iterable[str]) -> list[Checkpoint]:
    """Return the checkpoints of the V1 format at a path; `names` are in its folder."""
    name = re.escape(os.path.basename(prefix))
    shards = map(re.compile(rf"{name}-\d{{5}}-of-(\d{{5}})").fullmatch, names)
    counts = {shard[1] for shard in shards if shard}
    patterns = [f"{prefix}{index.V1_SHARDS}{count}" for count in sorted(counts)]
    return [each for each in map(Checkpoint.at, (prefix, *patterns)) if each.is_v1]


def _stat(path: str, field: str) -> Any:
    """Return a field of `os.stat`, or 0 if the file does not exist."""
    try:
        return getattr(os.stat(path), field)
    except FileNotFoundError:
        return 0
