"""What the compatibility layer found and did: for a bug report."""

import dataclasses
import importlib.metadata
import platform

from estimator_runtime.compat import patch, versions
from estimator_runtime.compat.patches import PATCHES

_PACKAGES = ("tensorflow-estimator", "tf-keras", "numpy", "protobuf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The installed packages, and each known difference with what became of it.

    Attributes:
        versions: Package to version; "not installed" where it is missing. The first
            two are "python" and "tensorflow".
        patches: Name of a patch to its state in this process (see `patch.state`).
        reasons: Name of a patch to what breaks without it.
    """

    versions: dict[str, str]
    patches: dict[str, str]
    reasons: dict[str, str]

    def __str__(self):
        lines = [", ".join(f"{name} {text}" for name, text in self.versions.items())]
        # By what became of them, in the order in which that is first met.
        for state in dict.fromkeys(self.patches.values()):
            lines.append(f"{state}:")
            lines += (
                f"  {name}: {self.reasons[name]}"
                for name, its_state in self.patches.items()
                if its_state == state
            )
        return "\n".join(lines)


def report():
    """Look at this process; imports no TensorFlow.

    Raises:
        CompatibilityError: If TensorFlow is missing or has no version.
    """
    tensorflow = versions.tensorflow_version()
    version = versions.parse(tensorflow)
    found = {"python": platform.python_version(), "tensorflow": tensorflow}
    return Report(
        versions={**found, **{name: _version(name) for name in _PACKAGES}},
        patches={each.name: patch.state(each, version) for each in PATCHES},
        reasons={each.name: each.reason for each in PATCHES},
    )


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
