"""How much memory there is, told from files as the kernel writes them."""

import pytest
from memory import available_mb

_MB = 1 << 20


@pytest.fixture
def files(tmp_path):
    """Return a function that writes files below one folder."""

    def write(**contents):
        for name, text in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def _seen(folder):
    return available_mb(proc=folder / "proc", groups=folder / "cgroup")


def _machine(mb):
    return f"MemTotal:  99999999 kB\nMemAvailable:  {mb * 1024} kB\n"


def test_without_groups_it_is_what_the_machine_has(files, tmp_path):
    assert _seen(tmp_path) is None
    files(**{"proc/meminfo": _machine(8000)})
    assert _seen(tmp_path) == 8000


def test_a_group_of_cgroup_v2_that_has_less_is_what_counts(files, tmp_path):
    files(
        **{
            "proc/meminfo": _machine(8000),
            "proc/self/cgroup": "0::/batch.slice/job:7.scope\n",
            "cgroup/batch.slice/job:7.scope/memory.max": "max\n",
            "cgroup/batch.slice/job:7.scope/memory.current": f"{700 * _MB}\n",
            "cgroup/batch.slice/memory.max": f"{1000 * _MB}\n",
            "cgroup/batch.slice/memory.current": f"{900 * _MB}\n",
            "cgroup/batch.slice/memory.stat": (
                f"anon {500 * _MB}\ninactive_file {300 * _MB}\nactive_file {20 * _MB}\n"
            ),
        }
    )
    assert _seen(tmp_path) == 1000 - 900 + 320
    files(**{"proc/meminfo": _machine(50)})
    assert _seen(tmp_path) == 50


def test_a_container_of_cgroup_v1_sees_its_own_group_where_the_root_is(files, tmp_path):
    files(
        **{
            "proc/meminfo": _machine(8000),
            "proc/self/cgroup": "9:cpu,cpuacct:/docker/7\n4:memory:/docker/7\n0::/\n",
            "cgroup/memory/memory.limit_in_bytes": f"{600 * _MB}\n",
            "cgroup/memory/memory.usage_in_bytes": f"{500 * _MB}\n",
            "cgroup/memory/memory.stat": (
                f"inactive_file 1\ntotal_inactive_file {40 * _MB}\n"
            ),
        }
    )
    assert _seen(tmp_path) == 140
