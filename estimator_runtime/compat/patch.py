"""One difference between TensorFlows, and when the patch for it is due."""

import dataclasses
import functools
import logging
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import ModuleType

from estimator_runtime.errors import CompatibilityError

_logger = logging.getLogger(__name__)
_states: dict[str, str] = {}  # name of a patch that was scheduled to what became of it
_applied: list[str] = []
_refused: dict[str, str] = {}  # module whose patches have failed to the error's text


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


def schedule(patches, *, are_required=True):
    """Apply patches right after the import of their modules; now, if that is done.

    One that was scheduled before is left out. All that wait for a module are tried,
    also after one that fails.

    Args:
        patches: The patches, in the order they are applied.
        are_required: Whether the error of a patch is raised, by the import or by this
            call, and the module refused from then on; else it is logged.
    """
    import wrapt  # here, so that --help and the version checks do without it

    groups: dict[str, list[Patch]] = {}
    for each in patches:
        if each.name not in _states:
            groups.setdefault(each.after, []).append(each)
    for module_name, group in groups.items():
        for each in group:
            _states[each.name] = f"waiting for {module_name}"
        wrapt.register_post_import_hook(
            functools.partial(_apply, group, are_required), module_name
        )


def check():
    """Refuse a process in which a required patch has failed.

    Raises:
        CompatibilityError: If there is one; the text names it and its error.
    """
    for text in _refused.values():
        raise CompatibilityError(text)


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
        called `install()`), "not needed" with these packages, or "failed (ERROR)".
    """
    if not patch.applies_to(version):
        return "not needed"
    return _states.get(patch.name, "not scheduled")


def _apply(patches, are_required, module):
    first: tuple[Patch, BaseException] | None = None  # of those that are raised
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
        # Only now: the patches after it may call install(), which would refuse them.
        _refuse(failed)
        raise cause


def _apply_one(patch, module):
    if not patch.needed():
        return "not needed"
    patch.apply(module)
    _applied.append(patch.name)
    _logger.debug("applied %s: %s", patch.name, patch.reason)
    return "applied"


def _refuse(patch):
    """Let nobody import a module that is patched by half.

    Python forgets a module whose import fails, and would import it again, without any
    of the patches; applied twice, some of them would act twice.
    """
    if not any(isinstance(each, _Refusal) for each in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())
    _refused[patch.after] = (
        f"{patch.after} is patched by half: {patch.name!r} has "
        f"{_states[patch.name]}; start a new process"
    )


class _Refusal(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in _refused:
            raise CompatibilityError(_refused[fullname])
