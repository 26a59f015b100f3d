"""How much memory is free for the processes that are started from here."""

import contextlib
import pathlib

_MB = 1 << 20
# Of each version of control groups: where the groups are, the files with the limit and
# the use of one, and what of memory.stat is given back when memory gets short.
_V2 = (".", "memory.max", "memory.current", ("active_file", "inactive_file"))
_V1 = (
    "memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)


def available_mb(proc="/proc", groups="/sys/fs/cgroup"):
    """Give the free memory in MB, or None if it is not known.

    It is what the machine has left, or a control group that this process is in: that of
    a container, a pod, a batch job or a service. The cache of files counts as free.

    Args:
        proc: Where the kernel tells of processes.
        groups: Where it tells of control groups.
    """
    free = [_of_machine(proc)]
    for line in _lines(pathlib.Path(proc, "self", "cgroup")):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            free += _of_groups(groups, path, *_V2)
        elif "memory" in controllers.split(","):
            free += _of_groups(groups, path, *_V1)
    known = [each for each in free if each is not None]
    return max(0, min(known)) // _MB if known else None


def _of_machine(proc):
    for line in _lines(pathlib.Path(proc, "meminfo")):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _of_groups(groups, path, folder, limit, usage, reclaimable):
    """Give the free bytes of a group and of those that it is in, as far as seen here.

    In a container the upper ones are not, and its own may be where the root is.
    """
    root = pathlib.Path(groups, folder)
    group = root / path.lstrip("/")
    for each in [group, *group.parents]:
        if root not in [each, *each.parents]:
            return
        yield _of_group(each, limit, usage, reclaimable)


def _of_group(group, limit, usage, reclaimable):
    has, used = _number(group / limit), _number(group / usage)
    if has is None or used is None:
        return None
    stat = dict(line.split(maxsplit=1) for line in _lines(group / "memory.stat"))
    return has - used + sum(int(stat.get(name, 0)) for name in reclaimable)


def _number(path):
    """Give the number in a file; None if it says "max", or is not there."""
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _lines(path):
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []
