"""`estimator-runtime enable`, `disable` and `status`: automatic activation."""

from __future__ import annotations

import argparse

from estimator_runtime.cli.parser import Parser
from estimator_runtime.config import tf1_mode as mode
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


def add_to(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the parsers of `enable`, `disable` and `status`."""
    enable = commands.add_parser(
        "enable",
        help="load the runtime in every python of this environment",
        description="Write two small files into site-packages, which Python reads at "
        f"its start.\n{_WHERE_ENABLED}\n"
        "The exit status is 1 if the packages cannot run Estimators, or the folder "
        "cannot\nbe written.",
    )
    enable.add_argument(
        "--tf1",
        action="store_true",
        help="with the API of TensorFlow 1 as `tensorflow`, for programs that were "
        f"written for it; {mode.VARIABLE}=0 switches that off for one run",
    )
    enable.set_defaults(describe=_enable)
    disable = commands.add_parser(
        "disable",
        help="undo 'enable'",
        description=f"Remove what 'enable' has written.\n{_WHERE_ENABLED}",
    )
    disable.set_defaults(describe=_disable)
    status = commands.add_parser(
        "status",
        help="say whether it is enabled, and on which TensorFlow",
        description="Say whether 'enable' is in force, and which versions are "
        f"installed.\n{_WHERE_ENABLED}\nThe exit status is 1 if Estimators cannot run "
        "here.",
    )
    status.set_defaults(describe=_status)
