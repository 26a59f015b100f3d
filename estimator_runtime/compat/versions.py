"""Which TensorFlow is here: read from package metadata, without importing it."""

import importlib
import importlib.metadata
import importlib.util
import logging
import re
import sys

from estimator_runtime.errors import CompatibilityError

_logger = logging.getLogger(__name__)

OLDEST = (2, 15)
NEWEST_TESTED = (2, 21)
FROZEN_ESTIMATOR = "2.15.0"

# TensorFlow goes by several names; the usual ones are asked first because asking
# all installed packages what they provide takes a hundred times longer.
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly")


def check_installed():
    """Check that the installed packages can run Estimators.

    Returns:
        TensorFlow's version as (major, minor).

    Raises:
        CompatibilityError: If TensorFlow is missing or older than 2.15, if
            tensorflow-estimator is missing or not 2.15.0, or if tf-keras is
            missing on TensorFlow >= 2.16.
    """
    text = tensorflow_version()
    version = parse(text)
    if version < OLDEST:
        raise CompatibilityError(
            f"TensorFlow {text} is too old; install 2.15 to "
            f"{_dotted(NEWEST_TESTED)}, such as: pip install tensorflow==2.15.1"
        )
    if version > NEWEST_TESTED:
        _logger.warning(
            "TensorFlow %s is newer than what estimator_runtime was tested with "
            "(%s to %s); trying anyway.",
            text,
            _dotted(OLDEST),
            _dotted(NEWEST_TESTED),
        )
    _check_frozen_estimator()
    if version >= (2, 16) and importlib.util.find_spec("tf_keras") is None:
        raise CompatibilityError(
            f"tf-keras is not installed, and Estimators on TensorFlow {text} need "
            f"it; pip install tf-keras=={_dotted(version)}.*"
        )
    return version


def parse(text):
    """Give a version text such as "2.16.0-rc1" as (major, minor)."""
    match = re.match(r"(\d+)\.(\d+)", text)
    if not match:
        raise CompatibilityError(
            f"TensorFlow calls its version {text!r}; expected a number such as 2.15.1"
        )
    return int(match[1]), int(match[2])


def major(module):
    """Give the major version of another package, such as 3; 0 if it tells none."""
    number = str(getattr(module, "__version__", "")).partition(".")[0]
    return int(number) if number.isdecimal() else 0


def wait_for_import():
    """Wait for the end of an `import tensorflow`, if another thread is at it.

    Raises:
        CompatibilityError: If this thread is at it itself.
    """
    if not _is_being_imported():
        return
    importlib.import_module("tensorflow")
    if _is_being_imported():
        raise CompatibilityError(
            "estimator_runtime.install() was called in the middle of `import "
            "tensorflow`, by something that it imports; call it before or after"
        )


def _is_being_imported():
    spec = getattr(sys.modules.get("tensorflow"), "__spec__", None)
    return getattr(spec, "_initializing", False)


def tensorflow_version():
    """Give the version of the TensorFlow that is imported, or would be, as text.

    Raises:
        CompatibilityError: If there is none, or none that says its version.
    """
    loaded = getattr(sys.modules.get("tensorflow"), "__version__", None)
    if loaded is not None:
        return loaded
    if importlib.util.find_spec("tensorflow") is None:
        raise CompatibilityError(
            "TensorFlow is not installed in this Python "
            f"({sys.executable}); pip install tensorflow"
        )
    for distribution in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    providers = importlib.metadata.packages_distributions().get("tensorflow")
    if not providers:
        raise CompatibilityError(
            "TensorFlow can be imported, but no installed package says which "
            "version it is; reinstall it: pip install --force-reinstall tensorflow"
        )
    return importlib.metadata.version(providers[0])


def _check_frozen_estimator():
    try:
        version = importlib.metadata.version("tensorflow-estimator")
    except importlib.metadata.PackageNotFoundError:
        version = None
    if version != FROZEN_ESTIMATOR:
        found = f"is {version}" if version else "is not installed"
        raise CompatibilityError(
            f"tensorflow-estimator {found}; "
            f"pip install tensorflow-estimator=={FROZEN_ESTIMATOR}"
        )


def _dotted(version):
    return ".".join(map(str, version))
