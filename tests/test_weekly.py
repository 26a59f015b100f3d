"""Where tests run, and how many at once: tests/weekly.txt and tests/plugins."""

import types

import pytest
import weekly
import workers


def test_no_line_of_the_weekly_tests_is_there_twice():
    assert len(set(weekly.LINES)) == len(weekly.LINES)


def test_each_line_of_the_weekly_tests_matches_a_test(unused_weekly_lines):
    assert unused_weekly_lines == []


@pytest.mark.parametrize(
    "group, limits, cores",
    [
        ("0::/", {".": "max 100000"}, 4),
        ("0::/", {".": "150000 100000"}, 2),
        ("0::/", {".": "10000 100000"}, 1),
        ("0::/job", {"job": "200000 100000"}, 2),
        ("0::/job/step", {"job": "300000 100000", "job/step": "max 100000"}, 3),
        ("0::/not/visible", {".": "100000 100000"}, 1),
        ("1:cpu:/job", {}, 4),
    ],
)
def test_a_control_group_may_allow_fewer_cores(
    monkeypatch, tmp_path, group, limits, cores
):
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: set(range(4)))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"{group}\n")
    for folder, limit in limits.items():
        (tmp_path / "groups" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / folder / "cpu.max").write_text(f"{limit}\n")
    assert workers.cores(tmp_path, tmp_path / "groups") == cores


@pytest.mark.parametrize(
    "numprocesses, free_mb, processes",
    [
        ("auto", 100_000, 4),
        ("logical", 100_000, 6),
        ("logical", 10_000, 3),
        ("auto", 1_000, 1),
        ("auto", None, 4),
    ],
)
def test_there_are_as_many_workers_as_cores_and_memory_allow(
    monkeypatch, numprocesses, free_mb, processes
):
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.setattr(workers, "cores", lambda: 4)
    monkeypatch.setattr(workers.memory, "available_mb", lambda: free_mb)
    config = types.SimpleNamespace(
        option=types.SimpleNamespace(numprocesses=numprocesses)
    )
    assert workers.pytest_xdist_auto_num_workers(config) == processes


def test_the_variable_of_xdist_takes_precedence(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "7")
    assert workers.pytest_xdist_auto_num_workers(None) is None
