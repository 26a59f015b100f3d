"""A report of the installed packages and the patches, for bug reports."""

import dataclasses
import platform

from estimator_runtime.patching import patch
from estimator_runtime.patching.table import PATCHES
from estimator_runtime.tf_internals import versions

_PACKAGES = ("tensorflow-estimator", "tf-keras", "numpy", "protobuf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The versions of the installed packages and the states of all patches.

    Attributes:
        versions: Version of each package, or "not installed"; first "python" and
            "tensorflow".
        patches: State of each patch in this process, by name (see `patch.state`).
        reasons: What breaks without each patch, by name.
    """

    versions: dict[str, str]
    patches: dict[str, str]
    reasons: dict[str, str]

    def __str__(self) -> str:
        lines = [", ".join(f"{name} {text}" for name, text in self.versions.items())]
        # Grouped by state, in the order of the first patch with each state.
        for state in dict.fromkeys(self.patches.values()):
            lines.append(f"{state}:")
            lines += (
                f"  {name}: {self.reasons[name]}"
                for name, its_state in self.patches.items()
                if its_state == state
            )
        return "\n".join(lines)


def report() -> Report:
    """Return the report of this process, without importing TensorFlow.

    Raises:
        CompatibilityError: If TensorFlow is missing or has no version.
    """
    tensorflow = versions.tensorflow_version()
    version = versions.parse(tensorflow)
    found = {"python": platform.python_version(), "tensorflow": tensorflow}
    patches = dict.fromkeys((*PATCHES, *patch.scheduled()))
    return Report(
        versions={
            **found,
            **{n: versions.installed(n) or "not installed" for n in _PACKAGES},
        },
        patches={each.name: patch.state(each, version) for each in patches},
        reasons={each.name: each.reason for each in patches},
    )
