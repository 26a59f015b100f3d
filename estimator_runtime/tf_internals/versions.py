"""Versions of the installed packages, and whether they can run Estimators.

They are read from package metadata. No package is imported for that.
"""

import importlib
import importlib.metadata
import importlib.util
import logging
import re
import sys
from collections.abc import Iterable
from types import ModuleType

from estimator_runtime.errors import CompatibilityError

_logger = logging.getLogger(__name__)
OLDEST = (2, 15)
NEWEST_TESTED = (2, 21)
FROZEN_ESTIMATOR = "2.15.0"
# TensorFlow is distributed under several names. The usual ones are tried first, because
# it takes a hundred times longer to look through all installed packages.
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly")


def check_installed() -> tuple[int, int]:
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
            f"it; pip install 'tf-keras=={_dotted(version)}.*'"
        )
    return version


def parse(text: str) -> tuple[int, int]:
    """Return a version such as "2.16.0-rc1" as (major, minor).

    Raises:
        CompatibilityError: If the text does not start with two numbers.
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if not match:
        raise CompatibilityError(
            f"TensorFlow calls its version {text!r}; expected a number such as 2.15.1"
        )
    return int(match[1]), int(match[2])


def major(module: ModuleType | None) -> int:
    """Return the major version of a package, such as 3, or 0 if it has no version."""
    number = str(getattr(module, "__version__", "")).partition(".")[0]
    return int(number) if number.isdecimal() else 0


def wait_for_import() -> None:
    """Wait until TensorFlow is imported, if another thread is importing it.

    Raises:
        CompatibilityError: If the calling thread itself is importing TensorFlow.
    """
    if not _is_being_imported():
        return
    importlib.import_module("tensorflow")
    if _is_being_imported():
        raise CompatibilityError(
            "estimator_runtime.install() was called in the middle of `import "
            "tensorflow`, by something that it imports; call it before or after"
        )


def _is_being_imported() -> bool:
    spec = getattr(sys.modules.get("tensorflow"), "__spec__", None)
    return getattr(spec, "_initializing", False)


def tensorflow_version() -> str:
    """Return the version of the TensorFlow that is imported, or would be.

    Raises:
        CompatibilityError: If TensorFlow is not installed or has no known version.
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
        if version := installed(distribution):
            return version
    providers = importlib.metadata.packages_distributions().get("tensorflow")
    if not providers:
        raise CompatibilityError(
            "TensorFlow can be imported, but no installed package says which "
            "version it is; reinstall it: pip install --force-reinstall tensorflow"
        )
    return importlib.metadata.version(providers[0])


def installed(distribution: str) -> str | None:
    """Return the version of a distribution package, or None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_frozen_estimator() -> None:
    version = installed("tensorflow-estimator")
    if version != FROZEN_ESTIMATOR:
        found = f"is {version}" if version else "is not installed"
        raise CompatibilityError(
            f"tensorflow-estimator {found}; "
            f"pip install tensorflow-estimator=={FROZEN_ESTIMATOR}"
        )


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))
