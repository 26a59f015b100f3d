"""The installed packages: whether they run Estimators, and were tested together."""

import importlib.metadata
from collections.abc import Iterator
from typing import Any

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.patching.injection.activation import Activation
from estimator_runtime.patching.report import report
from estimator_runtime.tf_internals import versions
from estimator_runtime.tf_internals.versions import TESTED

_OLDEST_RAY = (2, 60)  # as in setup.cfg


def check_versions(_subject: Subject) -> Iterator[Finding]:
    """Check the packages of this Python by their metadata, without importing them.

    Raises:
        CompatibilityError: If they cannot run Estimators.
    """
    found = report().versions
    shown = ", ".join(f"{name} {version}" for name, version in found.items())
    version = versions.check_installed()
    facts: dict[str, Any] = {"versions": found}
    tf_keras = found["tf-keras"]
    if version >= (2, 16) and versions.parse(tf_keras) != version:
        wanted = ".".join(map(str, version))
        text = (
            f"tf-keras {tf_keras} is for another TensorFlow; pip install "
            f"'tf-keras=={wanted}.*' ({shown})"
        )
        yield Finding(PROBLEM, text, facts)
        return
    tested = TESTED.get(version)
    if tested is None:
        newest = TESTED[max(TESTED)].tensorflow
        text = f"{shown}: newer than what was tested, up to TensorFlow {newest}"
        yield Finding(NOTE, text, facts)
        return
    others = tested.differences(found)
    facts = {**facts, "tested": not others, "differences": others}
    if not others:
        yield Finding(OK, f"{shown}: the set that was tested", facts)
        return
    text = (
        f"{shown}: not the set that was tested ({', '.join(others)}); "
        f"{tested.constraints} of the repository has that"
    )
    yield Finding(NOTE, text, facts)


def check_ray(_subject: Subject) -> Iterator[Finding]:
    """Check whether Ray is older than the tested versions, without importing it."""
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        text = "not installed; only jobs on Ray need it"
        yield Finding(OK, text, {"version": None})
        return
    state, text = OK, f"ray {version}"
    if versions.parse(version) < _OLDEST_RAY:
        oldest = ".".join(map(str, _OLDEST_RAY))
        state = NOTE
        text += ": older than what was tested; for jobs on Ray, "
        text += f"pip install 'ray>={oldest}'"
    yield Finding(state, text, {"version": version})


def check_activation(subject: Subject) -> Iterator[Finding]:
    """Check whether automatic activation is enabled in this Python environment."""
    activation = Activation()
    facts = {"enabled": activation.is_enabled(), "folder": str(activation.folder)}
    yield Finding(OK, activation.describe(subject.environ), facts)
