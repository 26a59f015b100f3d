"""What a training step costs: the runtime beside TensorFlow's loops and Keras."""

import functools

from benchmarks import contenders, harness
from benchmarks.contenders import Window
from benchmarks.models import SIMPLE_MODELS
from benchmarks.wide_and_deep import WIDE_AND_DEEP

MODELS = {**SIMPLE_MODELS, "wide_and_deep": WIDE_AND_DEEP}
# The models with the cheaper steps need more of them for a steady figure.
_STEPS = {"linear": 2000, "dnn": 1500, "cnn": 500, "wide_and_deep": 1000}
_ROUNDS = 5
_WARM_UP = 200
BASELINE = "stock"


def measure(quick, announce):
    """Train every model in every way, interleaved.

    Args:
        quick: Whether to take few steps, once: enough to see that everything works,
            too little for figures to mean anything.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON; its shape is in README.md.
    """
    report = {
        "benchmark": "steps",
        "baseline": BASELINE,
        "quick": quick,
        "machine": harness.machine(),
        "models": {},
    }
    for name, model in MODELS.items():
        announce(f"{name}: {model.title}")
        window = Window(warm_up=_WARM_UP, steps=_STEPS[name])
        rounds = _ROUNDS
        if quick:
            window, rounds = Window(warm_up=10, steps=20), 1
        costs = harness.interleave(_contenders(model, window), rounds, announce)
        report["models"][name] = {
            "title": model.title,
            "measured_steps": window.steps,
            "contenders": harness.summarize(costs, BASELINE),
        }
    return report


def _contenders(model, window):
    ways = {
        "Session.run": contenders.session_run,
        "make_callable": contenders.make_callable,
        BASELINE: contenders.stock_estimator,
        "plans": functools.partial(contenders.our_estimator, steps_per_run=1),
    }
    for steps in (10, 100, "auto"):
        ways[f"fused {steps}"] = functools.partial(
            contenders.our_estimator, steps_per_run=steps
        )
    for steps in (1, 10, 100):
        ways[f"Keras {steps}"] = functools.partial(
            contenders.keras_fit, steps_per_execution=steps
        )
    return {
        name: functools.partial(train, model, window) for name, train in ways.items()
    }
