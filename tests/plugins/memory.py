"""The memory that this machine, or the control group of this process, has left."""

import contextlib
import os
import pathlib

_MB = 1 << 20
# For each version of control groups: the folder with the groups, the files with the
# limit and the usage of a group, and the entries of memory.stat that the kernel can
# reclaim when memory runs short.
_V2 = (".", "memory.max", "memory.current", ("active_file", "inactive_file"))
_V1 = (
    "memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)


def available_mb(
    proc: str | os.PathLike[str] = "/proc",
    groups: str | os.PathLike[str] = "/sys/fs/cgroup",
) -> int | None:
    """Return the free memory in MB, or None if it is unknown.

    This is the least of what the machine has left and what each control group of this
    process has left. A group may be that of a container, a pod, a batch job or a
    service. The page cache counts as free.

    Args:
        proc: The mount point of procfs.
        groups: The mount point of the control groups.
    """
    free = [
        int(text.split()[0]) * 1024
        for name, text in _entries(pathlib.Path(proc, "meminfo")).items()
        if name == "MemAvailable:"
    ]
    for line in _lines(pathlib.Path(proc, "self", "cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, limit, usage, reclaimable = _V1 if controllers else _V2
        root = pathlib.Path(groups, folder)
        group = root / path.lstrip("/")
        # In a container the outer groups are not visible, and the container's own group
        # may be at the root.
        for each in (group, *group.parents):
            if each.is_relative_to(root):
                free += _free_bytes(each, limit, usage, reclaimable)
    return max(0, min(free)) // _MB if free else None


def _free_bytes(
    group: pathlib.Path, limit: str, usage: str, reclaimable: tuple[str, ...]
) -> list[int]:
    """Return the free bytes of a control group; nothing if it has no limit."""
    try:
        free = int((group / limit).read_text()) - int((group / usage).read_text())
    except (OSError, ValueError):  # there is no such group, or its limit is "max"
        return []
    stat = _entries(group / "memory.stat")
    return [free + sum(int(stat.get(name, 0)) for name in reclaimable)]


def _entries(path: pathlib.Path) -> dict[str, str]:
    """Return the rest of each line of a file by its first word."""
    return dict(line.split(maxsplit=1) for line in _lines(path))


def _lines(path: pathlib.Path) -> list[str]:
    """Return the lines of a file, or no lines if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []
