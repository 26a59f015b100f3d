"""Chooses the number of test processes for `--numprocesses=auto` and `logical`."""

import os
import pathlib

import memory
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
    free = memory.available_mb()
    return max(1, min(wanted, wanted if free is None else free // _MB_FOR_EACH))


def cores():
    """Return the cores that the affinity and the control groups of this process allow."""
    root = own = pathlib.Path("/sys/fs/cgroup")
    # Version 2 has the line "0::/path". In a container the outer groups are not visible.
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            own = root / line.removeprefix("0::").lstrip("/")
    limits = [_limit(each) for each in (own, *own.parents) if each.is_relative_to(root)]
    return max(1, round(min([len(os.sched_getaffinity(0)), *limits])))


def _limit(group):
    """Return the cores of a control group; infinity if it has no limit."""
    try:
        limit, period = (group / "cpu.max").read_text().split()
    except OSError:
        return float("inf")
    return float("inf") if limit == "max" else int(limit) / int(period)
