"""What it costs a step that every hundredth of them is logged."""

import functools

from benchmarks.harness import measurement
from benchmarks.training import contenders
from benchmarks.training.contenders import Window
from benchmarks.training.models import SIMPLE_MODELS

EVERY = 100
# Name to the way to train and the most steps in one call of its session.
_WAYS = {
    "stock": (contenders.stock_estimator, 1),
    "plans": (contenders.our_estimator, 1),
    "fused 100": (contenders.our_estimator, 100),
}
# The cheapest step: what is added to it shows best.
_MODEL = SIMPLE_MODELS["linear"]
_ROUNDS = 15


def measure(quick, announce):
    """Train with `log_step_count_steps=100` and without, in turn.

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON. It is one of `steps.measure`, with `prices` beside
        the contenders: for each way to train, the median and the quartiles of the
        differences of the two costs of a round, in microseconds.
    """
    window = Window(warm_up=2401, steps=8000, warm_up_calls=120)
    rounds = _ROUNDS
    if quick:
        window, rounds = Window(warm_up=11, steps=20), 1
    ways = {}
    for name, (train, steps_per_run) in _WAYS.items():
        for every in (EVERY, None):
            ways[_name(name, every)] = functools.partial(
                train,
                _MODEL,
                window.after_calls_of(steps_per_run),
                steps_per_run=steps_per_run,
                log_step_count_steps=every,
            )
    machine = measurement.machine()
    # The two that are compared are measured one right after the other.
    costs = measurement.interleave(ways, rounds, announce, together=2)
    return {
        "benchmark": "logging",
        "baseline": _name("stock", None),
        "quick": quick,
        "machine": machine,
        "models": {
            "linear": {
                "title": _MODEL.title,
                "measured_steps": window.steps,
                "contenders": measurement.summarize(costs, _name("stock", None)),
                "prices": {name: _price(costs, name) for name in _WAYS},
            }
        },
    }


def _name(way, every):
    return f"{way}, no log" if every is None else f"{way}, log every {every}"


def _price(costs, way):
    pairs = list(zip(costs[_name(way, EVERY)], costs[_name(way, None)], strict=True))
    return {
        "wall_us_per_step": measurement.spread(a.wall_us - b.wall_us for a, b in pairs),
        "cpu_us_per_step": measurement.spread(a.cpu_us - b.cpu_us for a, b in pairs),
    }
