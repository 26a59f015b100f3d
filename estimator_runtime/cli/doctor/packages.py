"""The installed packages: can they run Estimators, and were they tested together?"""

import importlib.metadata
import logging

from estimator_runtime.activation import Activation
from estimator_runtime.compat import versions
from estimator_runtime.compat.report import report
from estimator_runtime.compat.tested import TESTED
from estimator_runtime.doctor.finding import NOTE, OK, PROBLEM, Finding
from estimator_runtime.errors import CompatibilityError

_OLDEST_RAY = (2, 60)  # as setup.cfg has it


def examine():
    """Look at the packages of this Python; read their metadata only."""
    try:
        found = report().versions
    except CompatibilityError as error:
        return Finding(about="packages", state=PROBLEM, text=str(error))
    texts = ", ".join(f"{name} {version}" for name, version in found.items())
    facts = {"versions": found}
    try:
        # Of a newer TensorFlow it warns; here that is a finding.
        logging.getLogger(versions.__name__).disabled = True
        version = versions.check_installed()
        _check_tf_keras(version, found["tf-keras"])
    except CompatibilityError as error:
        return Finding(
            about="packages", state=PROBLEM, text=f"{error} ({texts})", facts=facts
        )
    finally:
        logging.getLogger(versions.__name__).disabled = False
    tested = TESTED.get(version)
    if tested is None:
        newest = TESTED[max(TESTED)].tensorflow
        text = f"{texts}: newer than what was tested, up to TensorFlow {newest}"
        return Finding(about="packages", state=NOTE, text=text, facts=facts)
    others = tested.differences(found)
    facts = {**facts, "tested": not others, "differences": others}
    if not others:
        text = f"{texts}: the set that was tested"
        return Finding(about="packages", state=OK, text=text, facts=facts)
    text = (
        f"{texts}: not the set that was tested ({', '.join(others)}); "
        f"{tested.constraints} of the repository has that"
    )
    return Finding(about="packages", state=NOTE, text=text, facts=facts)


def examine_ray():
    """Say which Ray is installed, and whether it is older than what was tested.

    No Ray is asked anything.
    """
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        text = "not installed; only jobs on Ray need it"
        return Finding(about="ray", state=OK, text=text, facts={"version": None})
    state, text = OK, f"ray {version}"
    if versions.parse(version) < _OLDEST_RAY:
        oldest = ".".join(map(str, _OLDEST_RAY))
        state = NOTE
        text += ": older than what was tested; for jobs on Ray, "
        text += f"pip install 'ray>={oldest}'"
    return Finding(about="ray", state=state, text=text, facts={"version": version})


def examine_activation(environ):
    """Say whether every python of this environment has the runtime."""
    activation = Activation()
    facts = {"enabled": activation.is_enabled(), "folder": str(activation.folder)}
    text = activation.describe(environ)
    return Finding(about="activation", state=OK, text=text, facts=facts)


def _check_tf_keras(version, found):
    if version < (2, 16) or found == "not installed":  # the latter was checked
        return
    if versions.parse(found) != version:
        wanted = ".".join(map(str, version))
        raise CompatibilityError(
            f"tf-keras {found} is for another TensorFlow; pip install "
            f"tf-keras=={wanted}.*"
        )
