"""`estimator-runtime enable`, `disable` and `status`: automatic activation."""

import argparse
from collections.abc import Callable

from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.patching import install
from estimator_runtime.patching.injection.activation import VARIABLE, Activation
from estimator_runtime.patching.report import report
from estimator_runtime.tf_internals import versions

_WHERE_ENABLED = (
    "Where it is enabled, plain `python train.py`, notebooks and tests have "
    "tf.estimator as\nunder 'estimator-runtime run', and tf.keras is tf-keras. "
    f"{VARIABLE}=0 switches it off\nfor one run."
)


def _enable(options: argparse.Namespace) -> tuple[str, int]:
    versions.check_installed()
    Activation().enable(tf1=options.tf1)
    return Activation().describe(), 0


def _disable(_options: argparse.Namespace) -> tuple[str, int]:
    Activation().disable()
    return Activation().describe(), 0


def _status(_options: argparse.Namespace) -> tuple[str, int]:
    activation = Activation().describe()
    try:
        install()
    except EstimatorRuntimeError as error:
        return f"{activation}\nno Estimators: {error}", 1
    found = report().versions.items()
    return f"{activation}\n{', '.join(f'{name} {text}' for name, text in found)}", 0


# The name of each command to (the function that runs it and returns a text and the exit
# status, its help, its description).
COMMANDS: dict[
    str, tuple[Callable[[argparse.Namespace], tuple[str, int]], str, str]
] = {
    "enable": (
        _enable,
        "load the runtime in every python of this environment",
        "Write two small files into site-packages, which Python reads at its start.\n"
        f"{_WHERE_ENABLED}\n"
        "The exit status is 1 if the packages cannot run Estimators, or the folder "
        "cannot\nbe written.",
    ),
    "disable": (
        _disable,
        "undo 'enable'",
        f"Remove what 'enable' has written.\n{_WHERE_ENABLED}",
    ),
    "status": (
        _status,
        "say whether it is enabled, and on which TensorFlow",
        "Say whether 'enable' is in force, and which versions are installed.\n"
        f"{_WHERE_ENABLED}\nThe exit status is 1 if Estimators cannot run here.",
    ),
}
