"""The installed packages: whether they run Estimators, and were tested together."""

import importlib.metadata
import logging
from collections.abc import Mapping
from typing import Any

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from estimator_runtime.errors import CompatibilityError
from estimator_runtime.patching.injection.activation import Activation
from estimator_runtime.patching.report import report
from estimator_runtime.tf_internals import versions
from estimator_runtime.tf_internals.versions import TESTED

_OLDEST_RAY = (2, 60)  # as in setup.cfg


def examine() -> Finding:
    """Check the packages of this Python by their metadata, without importing them."""
    try:
        found = report().versions
    except CompatibilityError as error:
        return Finding(PROBLEM, "packages", str(error))
    texts = ", ".join(f"{name} {version}" for name, version in found.items())
    facts: dict[str, Any] = {"versions": found}
    try:
        # It warns of a newer TensorFlow, which is a finding here.
        logging.getLogger(versions.__name__).disabled = True
        version = versions.check_installed()
        _check_tf_keras(version, found["tf-keras"])
    except CompatibilityError as error:
        return Finding(PROBLEM, "packages", f"{error} ({texts})", facts)
    finally:
        logging.getLogger(versions.__name__).disabled = False
    tested = TESTED.get(version)
    if tested is None:
        newest = TESTED[max(TESTED)].tensorflow
        text = f"{texts}: newer than what was tested, up to TensorFlow {newest}"
        return Finding(NOTE, "packages", text, facts)
    others = tested.differences(found)
    facts = {**facts, "tested": not others, "differences": others}
    if not others:
        text = f"{texts}: the set that was tested"
        return Finding(OK, "packages", text, facts)
    text = (
        f"{texts}: not the set that was tested ({', '.join(others)}); "
        f"{tested.constraints} of the repository has that"
    )
    return Finding(NOTE, "packages", text, facts)


def examine_ray() -> Finding:
    """Check which Ray is installed, and whether it is older than the tested versions.

    Ray is not imported, and no cluster is contacted.
    """
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        text = "not installed; only jobs on Ray need it"
        return Finding(OK, "ray", text, {"version": None})
    state, text = OK, f"ray {version}"
    if versions.parse(version) < _OLDEST_RAY:
        oldest = ".".join(map(str, _OLDEST_RAY))
        state = NOTE
        text += ": older than what was tested; for jobs on Ray, "
        text += f"pip install 'ray>={oldest}'"
    return Finding(state, "ray", text, {"version": version})


def examine_activation(environ: Mapping[str, str]) -> Finding:
    """Check whether automatic activation is enabled in this Python environment."""
    activation = Activation()
    facts = {"enabled": activation.is_enabled(), "folder": str(activation.folder)}
    text = activation.describe(environ)
    return Finding(OK, "activation", text, facts)


def _check_tf_keras(version: tuple[int, int], found: str) -> None:
    # `check_installed` has already rejected a missing tf-keras where one is needed.
    if version < (2, 16) or found == "not installed":
        return
    if versions.parse(found) != version:
        wanted = ".".join(map(str, version))
        raise CompatibilityError(
            f"tf-keras {found} is for another TensorFlow; pip install "
            f"tf-keras=={wanted}.*"
        )
