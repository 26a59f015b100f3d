"""Chooses the number of test processes for `--numprocesses=auto` and `logical`."""

import os
import pathlib

import pytest

# What a worker of tests with TensorFlow needs, with the processes that it starts.
_MB_FOR_EACH = 3000
_MORE_TO_WAIT = 2


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may be missing.
def pytest_xdist_auto_num_workers(config):
    """Return one for each core; two more with `logical`, for tests that mostly wait.

    There are fewer where memory is short. pytest-xdist's variable
    PYTEST_XDIST_AUTO_NUM_WORKERS takes precedence.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    wanted = cores() + _MORE_TO_WAIT * (config.option.numprocesses == "logical")
    return max(1, min(wanted, int(free_mb() // _MB_FOR_EACH)))


def cores():
    """Return the cores that the affinity and the control groups of this process allow."""
    limits = [
        int(limit) / int(period)
        for limit, period in map(str.split, _values("cpu.max"))
        if limit != "max"
    ]
    return max(1, round(min([len(os.sched_getaffinity(0)), *limits])))


def free_mb():
    """Return the megabytes that the machine and the control groups have left."""
    files = [_values(f"memory.{name}") for name in ("max", "current", "stat")]
    left = [
        int(limit) - int(used) + _cached_bytes(stat)
        for limit, used, stat in zip(*files, strict=False)
        if limit != "max"
    ]
    meminfo = pathlib.Path("/proc/meminfo").read_text().split()
    available = int(meminfo[meminfo.index("MemAvailable:") + 1]) * 1024
    return min([available, *left]) / 2**20


def _cached_bytes(stat):
    """Return what the kernel can reclaim, by the content of memory.stat."""
    words = stat.split()
    found = dict(zip(words[::2], words[1::2], strict=True))
    return int(found["active_file"]) + int(found["inactive_file"])


def _values(name):
    """Return the content of a file of each control group that this process is in."""
    root = own = pathlib.Path("/sys/fs/cgroup")
    # Version 2 has the line "0::/path". In a container the outer groups are not visible.
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            own = root / line.removeprefix("0::").lstrip("/")
    groups = [each for each in (own, *own.parents) if each.is_relative_to(root)]
    files = [each / name for each in groups]
    return [each.read_text().strip() for each in files if each.is_file()]
