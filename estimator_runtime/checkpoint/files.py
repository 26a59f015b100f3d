"""The checkpoints in a folder: which there are, and moving or deleting one."""

import dataclasses
import os
import re

from estimator_runtime.checkpoint import bundle, durable

_FILE = re.compile(
    r"(?P<name>.+-(?P<step>\d+))\.(?P<kind>index|meta|data-\d{5}-of-\d{5})"
)
_DAMAGED = "damaged"


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
    def bytes(self):
        """Size of all files, in bytes; those deleted meanwhile count nothing."""
        return sum(_stat(path, "st_size") for path in self.files)

    @property
    def saved_at(self):
        """Time of its newest file, in seconds since 1970."""
        return max((_stat(path, "st_mtime") for path in self.files), default=0.0)

    def problem(self):
        """Say what is wrong with it; None if nothing shows. See `bundle.problem`."""
        return bundle.problem(self.prefix)


def step_of(prefix):
    """Give the number at the end of a checkpoint's name, or None."""
    digits = re.search(r"-(\d+)$", prefix)
    return int(digits.group(1)) if digits else None


def find(folder):
    """Find the numbered checkpoints in a folder, oldest step first.

    A file is one's by its name: NAME-STEP.index, NAME-STEP.data-I-of-N. What has
    neither, such as a .meta file alone, is no checkpoint.

    Raises:
        OSError: If the folder cannot be listed.
    """
    groups: dict[str, list[str]] = {}
    for name in os.listdir(folder):
        match = _FILE.fullmatch(name)
        if match:
            groups.setdefault(match["name"], []).append(os.path.join(folder, name))
    found = [
        Checkpoint(prefix=os.path.join(folder, name), files=tuple(sorted(paths)))
        for name, paths in groups.items()
        if any(not path.endswith(".meta") for path in paths)
    ]
    return sorted(found, key=lambda each: (each.step, each.prefix))


def at(prefix):
    """Give the checkpoint of a name, with or without a number; it may have no files."""
    folder, name = os.path.split(prefix)
    kinds = re.compile(re.escape(name) + r"\.(index|meta|data-\d{5}-of-\d{5})")
    try:
        names = os.listdir(folder or ".")
    except OSError:
        names = []
    files = sorted(os.path.join(folder, n) for n in names if kinds.fullmatch(n))
    return Checkpoint(prefix=prefix, files=tuple(files))


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
    for path in _index_first(checkpoint.files):
        os.rename(path, os.path.join(target, os.path.basename(path)))
    return target


def delete(checkpoint):
    """Delete a checkpoint's files, the index first: what is left is none any more."""
    for path in _index_first(checkpoint.files):
        durable.remove_if_there(path)


def _index_first(paths):
    return sorted(paths, key=lambda path: not path.endswith(".index"))


def _stat(path, field):
    try:
        return getattr(os.stat(path), field)
    except FileNotFoundError:
        return 0
