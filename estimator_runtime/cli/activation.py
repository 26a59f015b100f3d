"""`estimator-runtime enable`, `disable` and `status`: automatic activation by hand."""

from estimator_runtime.activation import VARIABLE, Activation
from estimator_runtime.compat import install, versions
from estimator_runtime.compat.report import report
from estimator_runtime.errors import EstimatorRuntimeError

_WHERE_ENABLED = (
    "Where enabled, plain `python train.py`, notebooks and tests have tf.estimator as "
    "under\n'estimator-runtime run', and tf.keras is tf-keras. "
    f"{VARIABLE}=0 switches it off\nfor one run."
)


def _enable(_options):
    versions.check_installed()
    Activation().enable()
    return Activation().describe(), 0


def _disable(_options):
    Activation().disable()
    return Activation().describe(), 0


def _status(_options):
    activation = Activation().describe()
    try:
        install()
    except EstimatorRuntimeError as error:
        return f"{activation}\nno Estimators: {error}", 1
    return f"{activation}\n{report()}", 0


# Name of a command to (what gives its text and exit status, its help, its description).
COMMANDS = {
    "enable": (
        _enable,
        "let every python of this environment have the runtime",
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
        "Say whether 'enable' is in force, which versions are installed, and which "
        f"differences\nbetween TensorFlows matter to them.\n{_WHERE_ENABLED}\nThe exit "
        "status is 1 if Estimators cannot run here.",
    ),
}
