"""The benchmark of whole programs: what it runs, its table, and a quick run."""

import json
import sys

import pytest
import tensorflow as tf

import estimator_runtime
from benchmarks.harness import processes
from benchmarks.job import benchmark, memory, program
from benchmarks.job import report as job_report

estimator_runtime.install()

_BASELINE = "stock" if processes.has_estimator() else "ours"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_benchmark):
    """The folder that a quick run has written."""
    folder = tmp_path_factory.mktemp("benchmarks")
    run_benchmark("job", "--quick", "--output", "out", cwd=folder)
    return folder / "out"


def _medians(contenders, key):
    return {name: figures[key]["median"] for name, figures in contenders.items()}


def test_a_quick_run_measures_an_example_and_single_rows_in_all_ways(folder):
    report = json.loads((folder / "job.json").read_text())
    assert (report["quick"], report["baseline"]) == (True, _BASELINE)
    ways = [*(["stock"] if _BASELINE == "stock" else []), "ours", "reuse graphs"]
    programs = {name: p["contenders"] for name, p in report["programs"].items()}
    assert {name: list(found) for name, found in programs.items()} == {
        "wide_and_deep": ways,
        "rows": [*ways, "predictor", "raw session"],
    }
    example, rows = programs["wide_and_deep"], programs["rows"]
    assert _medians(example, "evaluations") == dict.fromkeys(ways, 2)
    assert _medians(example, "exports") == dict.fromkeys(ways, 1)
    for figures in (*example.values(), *rows.values()):
        [wall], [imported], [after] = (
            figures[key]["rounds"]
            for key in ("wall_secs", "import_secs", "after_import_secs")
        )
        assert after == wall - imported
        assert figures["cpu_secs"]["median"] > 0.5
        # A process that has imported TensorFlow; in megabytes.
        assert 100 < figures["peak_mb"]["median"] < 10_000
    call_ms = _medians(rows, "call_ms")
    # Two calls of which one is the first: by the order only, and a wide margin.
    assert call_ms["predictor"] < call_ms["ours"] / 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("loop", "--epochs", "2", "--steps", "2"),
        ("predict", "--calls", "2"),
        ("row", "--through", "session", "--calls", "2"),
        ("memory", "--call", "predict", "--calls", "1", "2"),
    ],
)
def test_the_commands_of_the_program_do_what_they_say(arguments, tmp_path, capsys):
    name, *options = arguments
    if name != "loop":
        program.main(["train", str(tmp_path)])
    program.main([name, str(tmp_path), *options])
    newest = tf.train.latest_checkpoint(str(tmp_path))
    assert newest == str(tmp_path / f"model.ckpt-{4 if name == 'loop' else 100}")
    assert benchmark._work(tmp_path) == {
        "evaluations": 2 if name == "loop" else 0,
        "exports": 0,
    }
    last = capsys.readouterr().out.splitlines()[-1:]
    figure = {"loop": [], "memory": ["memory_mb"]}.get(name, ["call_ms"])
    assert [line.split()[0] for line in last] == figure


def test_stock_is_plain_python_and_ours_the_command():
    words = ("train.py", "--flag")
    python, runtime = (
        [sys.executable],
        [sys.executable, "-m", "estimator_runtime", "run"],
    )
    assert {way: benchmark.command(way, words) for way in ("stock", "ours", "reuse graphs")} == {
        # Stock's, also where the runtime is enabled for every python.
        "stock": ([*python, *words], {"ESTIMATOR_RUNTIME_AUTO": "0"}),
        "ours": ([*runtime, *words], {}),
        "reuse graphs": ([*runtime, *words], {"ESTIMATOR_RUNTIME_REUSE_GRAPHS": "1"}),
    }  # fmt: skip


def _figures(wall_secs, import_secs):
    return {
        "wall_secs": wall_secs,
        "import_secs": import_secs,
        "after_import_secs": wall_secs - import_secs,
        "cpu_secs": 5.0,
        "peak_mb": 700.0,
        "call_ms": 2.5,
    }


def _report():
    found = {
        "stock": [_figures(10.0, 2.0), _figures(18.0, 2.0), _figures(12.0, 2.0)],
        "ours": [_figures(6.0, 2.0), _figures(6.0, 2.0), _figures(6.0, 1.0)],
    }
    return {
        "benchmark": "job",
        "baseline": "stock",
        "quick": False,
        "machine": {
            "date": "2026-11-20", "cpu": "a CPU", "cpus": 2, "memory_gb": 8.0,
            "load_average_at_start": 0.25, "system": "Linux 6", "python": "3.11.7",
            "packages": {"tensorflow": "2.15.1"}, "estimator_runtime": "0.1.0",
        },
        "programs": {
            "rows": {
                "title": "rows",
                "contenders": benchmark.summarize(found, "stock"),
            }
        },
    }  # fmt: skip


def test_the_table_compares_within_a_round_with_and_without_the_import():
    assert job_report.render(_report()) == (
        "## job\n\n"
        "2026-11-20; a CPU, 2 CPUs, 8.0 GB, load 0.2; Linux 6; Python 3.11.7, "
        "tensorflow 2.15.1, estimator_runtime 0.1.0.\n\n"
        "### rows\n\n"
        "3 rounds; median (lower to upper quartile).\n\n"
        "| | wall, s | ratio to stock | import, s | after the import, s "
        "| ratio to stock | CPU, s | memory, MB | a call, ms |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
        "| stock | 12.0 (11.0 to 15.0) | 1.00 (1.00 to 1.00) | 2.0 (2.0 to 2.0) "
        "| 10.0 (9.0 to 13.0) | 1.00 (1.00 to 1.00) | 5.0 (5.0 to 5.0) "
        "| 700 (700 to 700) | 2.50 (2.50 to 2.50) |\n"
        "| ours | 6.0 (6.0 to 6.0) | 0.50 (0.42 to 0.55) | 2.0 (1.5 to 2.0) "
        "| 4.0 (4.0 to 4.5) | 0.50 (0.38 to 0.50) | 5.0 (5.0 to 5.0) "
        "| 700 (700 to 700) | 2.50 (2.50 to 2.50) |\n"
    )


@pytest.mark.long("four processes that import TensorFlow, one after the other")
def test_the_memory_after_many_calls_is_measured(tmp_path, run_benchmark):
    printed = run_benchmark("memory", "--quick", "--output", "out", cwd=tmp_path)
    report = json.loads((tmp_path / "out" / "memory.json").read_text())
    assert list(report["calls"]) == ["evaluate", "predict"]
    for own in report["calls"].values():
        for found in (own["memory_mb"], own["in_use_mb"]):
            assert list(found) == ["1", "3"]
            assert all(100 < mb < 10_000 for mb in found.values())
    assert printed == memory.render(report)
    assert "| | 1 | 3 |" in printed.splitlines()
