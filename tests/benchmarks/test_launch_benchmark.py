"""The launch benchmark: its table, and the processes it starts."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.harness import measurement
from benchmarks.launch import benchmark


def _report():
    figures = {
        key: measurement.spread([1.0, 2.0, 3.0])
        for key in (
            "first_step_secs",
            "all_step_secs",
            "first_step_after_start_secs",
            "cpu_secs",
            "memory_mb",
        )
    }
    return {
        "benchmark": "launch",
        "baseline": "stock",
        "quick": True,
        "machine": {
            "date": "2026-11-20", "cpu": "a CPU", "cpus": 2, "memory_gb": 8.0,
            "system": "Linux 6", "python": "3.11.7", "packages": {"tensorflow": "2.15.1"},
        },
        "jobs": {"ps": {"title": "5 tasks", "contenders": {"warm": figures}}},
    }  # fmt: skip


def test_the_table_can_be_printed_from_the_file(tmp_path, capsys):
    path = tmp_path / "launch.json"
    measurement.write(_report(), path)
    assert main(["table", str(path)]) == 0
    assert capsys.readouterr().out == benchmark.render(_report())


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, [], "No such file or directory"),
        ("{", [], "Expecting property name"),
        ("[]", [], "no benchmark has written this; give its NAME.json"),
        ('{"benchmark": "launch"}', ["--against", "x"], "--against is 'x', but launch"),
        (
            '{"benchmark": "steps", "models": {"a": {"contenders": {"stock": {}}}}}',
            ["--against", "x"],
            "has no contender 'x'; give stock",
        ),
    ],
)
def test_a_file_that_is_no_report_is_one_line(content, options, said, tmp_path, capsys):
    path = tmp_path / "launch.json"
    if content is not None:
        path.write_text(content)
    assert main(["table", str(path), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"benchmarks table: error: {path}: {said}")


def test_the_table_has_machine_versions_and_every_figure_with_its_quartiles():
    assert benchmark.render(_report()) == (
        "## launch (quick: the figures mean nothing)\n\n"
        "2026-11-20; a CPU, 2 CPUs, 8.0 GB; Linux 6; Python 3.11.7, tensorflow 2.15.1. "
        "Median (lower to upper quartile).\n\n"
        "### 5 tasks\n\n"
        "| | first step, s | all trainers step, s | first step after the first task's "
        "start, s | CPU, s | memory, MB |\n|---|---|---|---|---|---|\n"
        "| warm | 2.0 (1.5 to 2.5) | 2.0 (1.5 to 2.5) | 2.0 (1.5 to 2.5) | "
        "2.0 (1.5 to 2.5) | 2 (2 to 2) |\n"
    )


def test_plain_processes_get_the_cluster_of_the_job_each_as_its_own_task():
    commands = benchmark._commands("stock", "ps", ("program.py",))
    configs = [json.loads(variables["TF_CONFIG"]) for _, variables in commands]
    assert [(c["task"]["type"], c["task"]["index"]) for c in configs] == [
        ("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0),
    ]  # fmt: skip
    sizes = {job: len(tasks) for job, tasks in configs[0]["cluster"].items()}
    assert sizes == {"chief": 1, "worker": 2, "ps": 1}
    assert all(each["cluster"] == configs[0]["cluster"] for each in configs)
    # Stock's, whatever the environment would bring in.
    assert all(v["ESTIMATOR_RUNTIME_AUTO"] == "0" for _, v in commands)


def test_a_warm_job_is_one_command():
    [(command, variables)] = benchmark._commands("warm", "mwms", ("program.py",))
    assert command[1:] == [
        "-m", "estimator_runtime", "run", "--workers", "2", "program.py",
    ]  # fmt: skip
    assert variables == {}
