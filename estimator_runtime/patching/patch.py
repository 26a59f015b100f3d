"""Patches: each bridges one difference between versions of TensorFlow.

A patch is applied right after the import of the module that it changes.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from estimator_runtime.errors import CompatibilityError

_logger = logging.getLogger(__name__)
_states: dict[Patch, str] = {}  # of each scheduled patch, in order
_failures: list[str] = []  # of required patches


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patch:
    """One problem of some TensorFlow versions, and the function that fixes it.

    Attributes:
        name: Short name for logs and reports.
        reason: What breaks without the patch.
        after: Name of the module after whose import the patch is due.
        apply: Applies the patch. It is called once, with that module.
        since: First TensorFlow, as (major, minor), that needs the patch.
        until: First TensorFlow that no longer needs it, or None.
        needed: Returns whether the patch is needed, for conditions other than the
            version. It is called when the patch is due.
    """

    name: str
    reason: str
    after: str
    apply: Callable[[ModuleType], None]
    since: tuple[int, int] = (2, 15)
    until: tuple[int, int] | None = None
    needed: Callable[[], bool] = lambda: True

    def applies_to(self, version: tuple[int, int]) -> bool:
        """Return whether TensorFlow `version`, as (major, minor), needs this patch."""
        return self.since <= version and (self.until is None or version < self.until)


def schedule(patches: Iterable[Patch], *, are_required: bool = True) -> None:
    """Apply patches right after the import of their modules.

    A patch whose module is already imported is applied at once. A patch that was
    scheduled before is skipped.

    Args:
        patches: The patches, in the order in which they are applied.
        are_required: Whether the import, or this call, raises the error of a patch
            that fails; `check` then raises an error, too. If False, the error is
            logged, and the other patches are applied.
    """
    import wrapt  # here, so that --help and the version checks do not need it

    groups: dict[str, list[Patch]] = {}
    for each in patches:
        if each not in _states:
            _states[each] = f"waiting for {each.after}"
            groups.setdefault(each.after, []).append(each)
    for module_name, group in groups.items():
        wrapt.register_post_import_hook(
            functools.partial(_apply, group, are_required), module_name
        )


def check() -> None:
    """Raise an error if a required patch has failed in this process.

    Raises:
        CompatibilityError: If a patch has failed. The text names it and its error.
    """
    for text in _failures:
        raise CompatibilityError(text)


def scheduled() -> tuple[Patch, ...]:
    """Return the patches scheduled so far, in order."""
    return tuple(_states)


def state(patch: Patch, version: tuple[int, int]) -> str:
    """Return the state of a patch in this process, for a TensorFlow (major, minor).

    Returns:
        "applied", "waiting for MODULE" (which is not imported yet), "not scheduled"
        (`install()` was not called), "not needed" (with the installed packages), or
        "failed (ERROR)".
    """
    if not patch.applies_to(version):
        return "not needed"
    return _states.get(patch, "not scheduled")


def _apply(patches: Sequence[Patch], are_required: bool, module: ModuleType) -> None:
    """Apply the patches of a module that has just been imported."""
    for each in patches:
        try:
            _states[each] = _apply_one(each, module)
        except Exception as error:
            problem = f"failed ({type(error).__name__}: {error})"
            _states[each] = problem
            if are_required:
                _failures.append(
                    f"{each.after} is only partly patched: {each.name!r} has "
                    f"{problem}; start a new process"
                )
                raise
            _logger.warning(
                "%s cannot be patched on this TensorFlow, and stays as it is (%s): "
                "%s: %s",
                each.name,
                each.reason,
                type(error).__name__,
                error,
            )


def _apply_one(patch: Patch, module: ModuleType) -> str:
    """Apply a patch if it is needed, and return its state."""
    if not patch.needed():
        return "not needed"
    patch.apply(module)
    _logger.debug("applied %s: %s", patch.name, patch.reason)
    return "applied"
