"""How contenders take turns, and what is made of their figures."""

from benchmarks.harness import measurement
from benchmarks.harness.measurement import Cost
from benchmarks.harness.report import render


def _order_of(rounds, **kwargs):
    order = []
    contenders = {name: lambda: Cost(wall_us=1.0, cpu_us=1.0) for name in "abcd"}
    measurement.interleave(contenders, rounds, order.append, **kwargs)
    return [
        "".join(line[-1] for line in order[i : i + 4]) for i in range(0, 4 * rounds, 4)
    ]


def test_every_contender_has_every_place_in_turn():
    assert _order_of(rounds=4) == ["abcd", "bcda", "cdab", "dabc"]


def test_ratios_are_taken_round_by_round():
    costs = {
        "stock": [Cost(wall_us=w, cpu_us=1.0) for w in (100.0, 200.0, 400.0)],
        "ours": [
            Cost(wall_us=w, cpu_us=2.0, notes=("slow",)) for w in (50.0, 50.0, 50.0)
        ],
    }
    assert measurement.summarize(costs, "stock")["ours"] == {
        "wall_us_per_step": _spread(50.0, 50.0, 50.0, [50.0, 50.0, 50.0]),
        "cpu_us_per_step": _spread(2.0, 2.0, 2.0, [2.0, 2.0, 2.0]),
        "steps_per_sec": _spread(20000.0, 20000.0, 20000.0, [20000.0] * 3),
        "ratio_to_baseline": _spread(0.25, 0.1875, 0.375, [0.5, 0.25, 0.125]),
        "notes": ["slow"],
    }


def test_a_table_compares_with_any_contender():
    costs = {
        "stock": [Cost(wall_us=400.0, cpu_us=300.0)],
        "ours": [Cost(wall_us=100.0, cpu_us=150.0, notes=("was tired",))],
    }
    report = {
        "benchmark": "steps",
        "baseline": "stock",
        "quick": False,
        "machine": {
            "date": "2026-01-02",
            "cpu": "A fast one",
            "cpus": 2,
            "memory_gb": 8.0,
            "load_average_at_start": 0.25,
            "system": "Linux 6",
            "python": "3.11.7",
            "packages": {"tensorflow": "2.21.0", "keras": None},
            "estimator_runtime": "0.1.0",
        },
        "models": {
            "linear": {
                "title": "linear regression",
                "measured_steps": 1000,
                "contenders": measurement.summarize(costs, "stock"),
            }
        },
    }
    assert render(report, against="ours") == (
        "## steps\n"
        "\n"
        "2026-01-02; A fast one, 2 CPUs, 8.0 GB, load 0.2; Linux 6; Python 3.11.7, "
        "tensorflow 2.21.0, estimator_runtime 0.1.0.\n"
        "\n"
        "### linear regression\n"
        "\n"
        "1 round of 1000 steps; median (lower to upper quartile).\n"
        "\n"
        "| | µs/step | ratio to ours | CPU µs/step | steps/s |\n"
        "|---|---|---|---|---|\n"
        "| stock | 400 (400 to 400) | 4.00 (4.00 to 4.00) | 300 (300 to 300) | 2500 |\n"
        "| ours | 100 (100 to 100) | 1.00 (1.00 to 1.00) | 150 (150 to 150) | 10000 |\n"
        "\n"
        "- ours: was tired\n"
    )


def _spread(median, q1, q3, rounds):
    return {"median": median, "q1": q1, "q3": q3, "rounds": rounds}
