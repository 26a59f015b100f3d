"""One difference between TensorFlows, and when the patch for it is due."""

import dataclasses
import logging
from collections.abc import Callable
from types import ModuleType

_logger = logging.getLogger(__name__)
_scheduled: set[str] = set()
_applied: list[str] = []
_unneeded: set[str] = set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patch:
    """Something missing or wrong, and the function that mends it.

    Attributes:
        name: Short, for logs and reports.
        reason: What breaks without it.
        after: Module whose import makes the patch due.
        apply: Called once with that module.
        since: First TensorFlow (major, minor) that needs it.
        until: First TensorFlow that does not need it any more, or None.
        needed: Asked when the patch is due, for what the version does not tell.
    """

    name: str
    reason: str
    after: str
    apply: Callable[[ModuleType], None]
    since: tuple[int, int] = (2, 15)
    until: tuple[int, int] | None = None
    needed: Callable[[], bool] = lambda: True

    def applies_to(self, version):
        """Tell whether TensorFlow `version`, as (major, minor), needs this."""
        return self.since <= version and (self.until is None or version < self.until)


def schedule(patch):
    """Apply `patch` right after its module is imported; now, if it already is."""
    import wrapt  # here, so that --help and the version checks do without it

    def apply(module):
        if not patch.needed():
            _unneeded.add(patch.name)
            return
        patch.apply(module)
        _applied.append(patch.name)
        _logger.debug("applied %s: %s", patch.name, patch.reason)

    _scheduled.add(patch.name)
    wrapt.register_post_import_hook(apply, patch.after)


def is_scheduled(patch):
    """Tell whether `patch` waits for its module, or has been tried."""
    return patch.name in _scheduled


def applied():
    """Give the names of the patches applied so far, in order."""
    return tuple(_applied)


def state(patch, version):
    """Say what became of a patch in this process.

    Args:
        patch: The patch.
        version: TensorFlow's, as (major, minor).

    Returns:
        "applied", "waiting for MODULE" (to be imported), "not scheduled" (nobody has
        called `install()`), or "not needed" with these packages.
    """
    if patch.name in _applied:
        return "applied"
    if patch.name in _unneeded or not patch.applies_to(version):
        return "not needed"
    return f"waiting for {patch.after}" if is_scheduled(patch) else "not scheduled"
