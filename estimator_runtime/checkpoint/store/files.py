"""The checkpoints in a folder: which there are, and moving or deleting one."""

import dataclasses
import os
import re
from collections.abc import Iterable

from estimator_runtime.checkpoint import bundle, durable, reading

_FILE = re.compile(
    r"(?P<name>.+-(?P<step>\d+))\.(?P<kind>index|meta|data-\d{5}-of-\d{5})"
)
_SUFFIX = re.compile(r"\.(index|meta|data-)")
_DAMAGED = "damaged"
# TensorFlow reads a path with one of these as a pattern, and restores or deletes each
# file that matches; see FileSystem::GetMatchingPaths in its core/platform.
PATTERN = re.compile(r"[*?\[\\]")


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
    def step(self):
        """The number at the end of its name, or None."""
        return step_of(self.prefix)

    @property
    def has_index(self):
        """Whether it has an index, the last of its files to appear."""
        return f"{self.prefix}.index" in self.files

    @property
    def is_v1(self):
        """Whether it is of TensorFlow's V1 format: files that have no suffix."""
        suffixes = [os.path.splitext(path)[1] for path in self.files]
        return not self.has_index and not all(map(_SUFFIX.match, suffixes))

    @property
    def bytes(self):
        """Size of all files, in bytes; those deleted meanwhile count nothing."""
        return sum(_stat(path, "st_size") for path in self.files)

    @property
    def saved_at(self):
        """Time of its newest file, in seconds since 1970."""
        return max((_stat(path, "st_mtime") for path in self.files), default=0.0)

    def problem(self):
        """Return what is wrong with it, or None; see `bundle.problem`."""
        return bundle.problem(self.prefix)


def step_of(prefix):
    """Give the number at the end of a checkpoint's name, or None."""
    digits = re.search(r"-(\d+)\Z", _without_shards(prefix))
    return int(digits.group(1)) if digits else None


def series_of(prefix):
    """Give a checkpoint's name without the number at its end, and without folder."""
    return re.sub(r"-\d+\Z", "", os.path.basename(_without_shards(prefix)))


def find(folder):
    """Find the numbered checkpoints in a folder, oldest step first.

    A file is one's by its name: NAME-STEP.index, NAME-STEP.data-I-of-N; of the V1
    format NAME-STEP, with a .meta file beside it. What has none of these, such as a
    .meta file alone, is no checkpoint.

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
        patterns = [f"{prefix}{bundle.V1_SHARDS}{count}" for count in sorted(counts)]
        found += [each for each in map(at, (prefix, *patterns)) if each.is_v1]
    return sorted(found, key=lambda each: (each.step, each.prefix))


def at(prefix):
    """Return the checkpoint of a name, with or without a number.

    It may have no files.

    Raises:
        OSError: If the folder cannot be listed.
    """
    folder, name = os.path.split(_without_shards(prefix))
    kinds = re.compile(re.escape(name) + r"\.(index|meta|data-\d{5}-of-\d{5})")
    names = reading.names(folder)
    files = [os.path.join(folder, n) for n in names if kinds.fullmatch(n)]
    if all(path.endswith(".meta") for path in files):
        files += bundle.v1_files(prefix)
    return Checkpoint(prefix=prefix, files=tuple(sorted(files)))


def is_in(folder, prefix):
    """Tell whether a checkpoint lies in a folder, whatever either is called."""
    return os.path.realpath(os.path.dirname(prefix)) == os.path.realpath(folder)


def here(folder, prefix):
    """Give the path in a folder of a checkpoint that is there, by whatever path.

    A copy of a folder, or one that was moved, has files that name the old place. What
    is in the folder goes before what is elsewhere.
    """
    inside = os.path.join(folder, os.path.basename(prefix))
    return inside if is_in(folder, prefix) or at(inside).files else prefix


def set_aside(checkpoint):
    """Move a checkpoint to a folder `damaged` beside it; nothing there is replaced.

    Returns:
        The folder.

    Raises:
        OSError: If it cannot be moved.
    """
    folder = os.path.dirname(checkpoint.prefix)
    target, number = os.path.join(folder, _DAMAGED), 1
    while at(os.path.join(target, os.path.basename(checkpoint.prefix))).files:
        number += 1
        target = os.path.join(folder, f"{_DAMAGED}-{number}")
    os.makedirs(target, exist_ok=True)
    for path in index_first(checkpoint.files):
        os.rename(path, os.path.join(target, os.path.basename(path)))
    return target


def delete(checkpoint):
    """Delete a checkpoint's files, the index first: what is left is none any more."""
    for path in index_first(checkpoint.files):
        durable.remove_if_there(path)


def index_first(paths: Iterable[str]) -> list[str]:
    """Sort files of a checkpoint so that what is left of them is none any more."""
    return sorted(paths, key=lambda path: not path.endswith(".index"))


def _without_shards(prefix):
    return re.sub(r"-\?{5}-of-\d+$", "", prefix)


def _v1_shard_of(name):
    return re.compile(re.escape(name) + r"-\d{5}-of-(\d{5})")


def _stat(path, field):
    try:
        return getattr(os.stat(path), field)
    except FileNotFoundError:
        return 0
