"""When a patch is applied, shown on modules of the standard library."""

import sys

import pytest

from estimator_runtime.compat import patch
from estimator_runtime.compat.patch import Patch


def _patch(name, after, apply=lambda module: None, **when):
    return Patch(name=name, reason="for the test", after=after, apply=apply, **when)


def test_a_patch_waits_for_its_module_and_is_applied_right_after_the_import():
    sys.modules.pop("this", None)
    seen = []
    patch.schedule(
        _patch("zen", "this", apply=lambda module: seen.append(module.s[:3]))
    )
    assert seen == [] and "zen" not in patch.applied()
    import this  # noqa: F401

    assert seen == ["Gur"] and patch.applied()[-1] == "zen"


def test_a_patch_of_a_module_that_is_there_is_applied_at_once():
    seen = []
    patch.schedule(_patch("json", "json", apply=seen.append))
    assert seen == [sys.modules["json"]]


def test_an_error_in_a_patch_fails_the_import_that_needs_it():
    def refuse(module):
        raise LookupError(module.__name__)

    sys.modules.pop("colorsys", None)
    patch.schedule(_patch("colours", "colorsys", apply=refuse))
    with pytest.raises(LookupError, match="colorsys"):
        import colorsys  # noqa: F401


@pytest.mark.parametrize(
    "version, applies", [((2, 15), False), ((2, 16), True), ((2, 17), False)]
)
def test_a_patch_applies_from_since_up_to_but_without_until(version, applies):
    each = _patch("range", "json", since=(2, 16), until=(2, 17))
    assert each.applies_to(version) is applies
