"""Patches: each bridges one difference between versions of TensorFlow.

A patch is applied right after the import of the module that it changes.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from estimator_runtime.errors import CompatibilityError

_logger = logging.getLogger(__name__)
_states: dict[str, str] = {}  # maps the name of each scheduled patch to its state
_scheduled: list[Patch] = []
_refused: dict[str, str] = {}  # maps a module whose patches failed to the error's text


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
    scheduled before is skipped. If a patch fails, the other patches of its module are
    still applied.

    Args:
        patches: The patches, in the order in which they are applied.
        are_required: Whether the import, or this call, raises the error of a patch
            that fails. Later imports of the module then fail too. If False, the error
            is logged.
    """
    import wrapt  # here, so that --help and the version checks do not need it

    groups: dict[str, list[Patch]] = {}
    for each in patches:
        if each.name not in _states:
            _scheduled.append(each)
            groups.setdefault(each.after, []).append(each)
    for module_name, group in groups.items():
        for each in group:
            _states[each.name] = f"waiting for {module_name}"
        wrapt.register_post_import_hook(
            functools.partial(_apply, group, are_required), module_name
        )


def check() -> None:
    """Raise an error if a required patch has failed in this process.

    Raises:
        CompatibilityError: If a patch has failed. The text names it and its error.
    """
    for text in _refused.values():
        raise CompatibilityError(text)


def scheduled() -> tuple[Patch, ...]:
    """Return the patches scheduled so far, in order."""
    return tuple(_scheduled)


def state(patch: Patch, version: tuple[int, int]) -> str:
    """Return the state of a patch in this process, for a TensorFlow (major, minor).

    Returns:
        "applied", "waiting for MODULE" (which is not imported yet), "not scheduled"
        (`install()` was not called), "not needed" (with the installed packages), or
        "failed (ERROR)".
    """
    if not patch.applies_to(version):
        return "not needed"
    return _states.get(patch.name, "not scheduled")


def _apply(patches: Sequence[Patch], are_required: bool, module: ModuleType) -> None:
    """Apply the patches of a module that has just been imported."""
    first: tuple[Patch, BaseException] | None = None  # the one to raise
    for each in patches:
        try:
            _states[each.name] = _apply_one(each, module)
        except BaseException as error:  # noqa: BLE001 - raised below, or logged
            _states[each.name] = f"failed ({type(error).__name__}: {error})"
            is_stop = not isinstance(error, Exception)  # such as Ctrl-C
            if first is None and (are_required or is_stop):
                first = each, error
            if is_stop:
                break
            if not are_required:
                _logger.warning(
                    "%s cannot be patched on this TensorFlow, and stays as it is (%s): "
                    "%s: %s",
                    each.name,
                    each.reason,
                    type(error).__name__,
                    error,
                )
    if first is not None:
        failed, cause = first
        # Only now, because patches that follow the failed one may call install(), which
        # raises an error from here on.
        _refuse(failed)
        raise cause


def _apply_one(patch: Patch, module: ModuleType) -> str:
    """Apply a patch if it is needed, and return its state."""
    if not patch.needed():
        return "not needed"
    patch.apply(module)
    _logger.debug("applied %s: %s", patch.name, patch.reason)
    return "applied"


def _refuse(patch: Patch) -> None:
    """Make later imports of a partly patched module fail.

    Python forgets a module whose import fails, and the next import of it would start
    again. Its patches would then be missing. Applying them again is no remedy, because
    some patches take effect twice if they are applied twice.
    """
    if not any(isinstance(each, _Refusal) for each in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())
    _refused[patch.after] = (
        f"{patch.after} is only partly patched: {patch.name!r} has "
        f"{_states[patch.name]}; start a new process"
    )


class _Refusal(MetaPathFinder):
    """A finder that raises an error for modules whose patches have failed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> None:
        """Raise `CompatibilityError` if the module is one of these."""
        if fullname in _refused:
            raise CompatibilityError(_refused[fullname])
