"""The installed packages: whether they run Estimators."""

from collections.abc import Iterator

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.patching.injection.activation import Activation
from estimator_runtime.patching.report import report
from estimator_runtime.tf_internals import versions


def check_versions(_subject: Subject) -> Iterator[Finding]:
    """Check the packages of this Python by their metadata, without importing them.

    Raises:
        CompatibilityError: If they cannot run Estimators.
    """
    found = report().versions
    shown = ", ".join(f"{name} {version}" for name, version in found.items())
    version = versions.check_installed()
    tf_keras = found["tf-keras"]
    if version >= (2, 16) and versions.parse(tf_keras) != version:
        wanted = ".".join(map(str, version))
        text = (
            f"tf-keras {tf_keras} is for another TensorFlow; pip install "
            f"'tf-keras=={wanted}.*' ({shown})"
        )
        yield Finding(PROBLEM, text)
        return
    if version > versions.NEWEST_TESTED:
        newest = ".".join(map(str, versions.NEWEST_TESTED))
        text = f"{shown}: newer than what was tested, up to TensorFlow {newest}"
        yield Finding(NOTE, text)
        return
    yield Finding(OK, shown)


def check_activation(subject: Subject) -> Iterator[Finding]:
    """Check whether automatic activation is enabled in this Python environment."""
    yield Finding(OK, Activation().describe(subject.environ))
