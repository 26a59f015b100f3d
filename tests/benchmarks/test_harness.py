"""How contenders take turns, and what is made of their figures."""

from benchmarks.harness import measurement
from benchmarks.harness.measurement import Cost


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


def _spread(median, q1, q3, rounds):
    return {"median": median, "q1": q1, "q3": q3, "rounds": rounds}
