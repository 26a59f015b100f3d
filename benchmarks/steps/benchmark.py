"""What a training step costs: the runtime beside TensorFlow's loops and Keras."""

import functools

from benchmarks.harness import measurement
from benchmarks.training import contenders
from benchmarks.training.contenders import Window
from benchmarks.training.models import SIMPLE_MODELS, check_names
from benchmarks.training.resnet import RESNET
from benchmarks.training.wide_and_deep import WIDE_AND_DEEP

MODELS = {**SIMPLE_MODELS, "wide_and_deep": WIDE_AND_DEEP}
# For a GPU; measured only if it is named.
LARGE_MODELS = {"resnet50": RESNET}
# The models with the cheaper steps need more of them for a steady figure.
_STEPS = {"linear": 2000, "dnn": 1500, "cnn": 500, "wide_and_deep": 1000}
_ROUNDS = 5
# So many steps and calls go before, until caches and input pipelines are steady.
_WARM_UP = 2401
_WARM_UP_CALLS = 120
# Longest run of fused steps: the default hooks act at every hundredth.
_LONGEST_RUN = 100
BASELINE = "stock"
# What a quick run trains the models but the first in.
_QUICK_WAYS = (BASELINE, "fused 10", "Keras 10")
# The ways and the window of a large model, whose steps are long and alike.
_LARGE_WAYS = (BASELINE, "plans", "fused 10", "fused auto")
_LARGE_WINDOW = Window(warm_up=101, steps=100)


def measure(quick, announce, *, models=None, rounds=_ROUNDS):
    """Train models in every way, interleaved.

    Args:
        quick: Whether to take few steps, once: enough to see that everything works,
            too little for figures to mean anything.
        announce: Called with a line of text on what is going on.
        models: Names of the models; None for all.
        rounds: How often each is measured; once with `quick`.

    Returns:
        The report, ready for JSON; its shape is in README.md.

    Raises:
        SystemExit: If there is no model of a name.
    """
    known = {**MODELS, **LARGE_MODELS}
    check_names(models, known, "steps")
    report = measurement.new_report("steps", BASELINE, quick, models={})
    for name in models or MODELS:
        model = known[name]
        announce(f"{name}: {model.title}")
        if quick:
            window, rounds = Window(warm_up=11, steps=20), 1
        else:
            window = _window(name)
        ways = _contenders(model, window)
        if name in LARGE_MODELS:
            ways = {way: ways[way] for way in _LARGE_WAYS}
        elif quick and name != "linear":
            ways = {way: ways[way] for way in _QUICK_WAYS}
        costs = measurement.interleave(ways, rounds, announce)
        report["models"][name] = {
            "title": model.title,
            "measured_steps": window.steps,
            "batch_size": model.batch_size,
            "contenders": measurement.summarize(costs, BASELINE),
        }
    return report


def _window(name):
    if name in LARGE_MODELS:
        return _LARGE_WINDOW
    return Window(warm_up=_WARM_UP, steps=_STEPS[name], warm_up_calls=_WARM_UP_CALLS)


def _contenders(model, window):
    ways = {
        "Session.run": functools.partial(contenders.session_run, model, window),
        "make_callable": functools.partial(contenders.make_callable, model, window),
        BASELINE: functools.partial(contenders.stock_estimator, model, window),
        "plans": functools.partial(
            contenders.our_estimator, model, window, steps_per_run=1
        ),
    }
    for steps in (10, 100, "auto"):
        longest = _LONGEST_RUN if steps == "auto" else steps
        ways[f"fused {steps}"] = functools.partial(
            contenders.our_estimator,
            model,
            window.after_calls_of(longest),
            steps_per_run=steps,
        )
    for steps in (1, 10, 100):
        ways[f"Keras {steps}"] = functools.partial(
            contenders.keras_fit, model, window, steps_per_execution=steps
        )
    return ways
