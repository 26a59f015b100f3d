"""When a patch is applied, shown on modules of the standard library."""

import sys

import pytest

from estimator_runtime.patching import patch
from estimator_runtime.patching.patch import Patch


def _patch(name, after, apply=lambda module: None, **when):
    return Patch(name=name, reason="for the test", after=after, apply=apply, **when)


def test_a_patch_waits_for_its_module_and_is_applied_right_after_the_import():
    sys.modules.pop("this", None)
    seen = []
    zen = _patch("zen", "this", apply=lambda module: seen.append(module.s[:3]))
    patch.schedule([zen])
    assert (seen, patch.state(zen, (2, 21))) == ([], "waiting for this")
    import this  # noqa: F401

    assert (seen, patch.state(zen, (2, 21))) == (["Gur"], "applied")


def test_a_patch_of_a_module_that_is_there_is_applied_at_once_and_only_once():
    seen = []
    for _ in range(2):
        patch.schedule([_patch("json", "json", apply=seen.append)])
    assert seen == [sys.modules["json"]]


@pytest.mark.parametrize(
    "version, applies", [((2, 15), False), ((2, 16), True), ((2, 17), False)]
)
def test_a_patch_applies_from_since_up_to_but_without_until(version, applies):
    each = _patch("range", "json", since=(2, 16), until=(2, 17))
    assert each.applies_to(version) is applies


# What fails stays failed for the process: each program has one of its own.
_FAILING = """
import sys
import estimator_runtime
from estimator_runtime.patching import patch
def fail(module):
    raise LookupError(module.__name__)
seen = []
first = patch.Patch(name="first", reason="a test", after="colorsys", apply=fail)
second = patch.Patch(name="second", reason="a test", after="colorsys", apply=seen.append)
def attempt(function, *args):
    try:
        function(*args)
    except BaseException as error:
        print(type(error).__name__, error, sep=": ")
def report():
    print(*(patch.state(each, (2, 21)) for each in (first, second)), len(seen), sep="; ")
"""


@pytest.fixture
def lines_of(run_python):
    """Return a function that runs a program; it returns the lines of both its outputs."""

    def lines_of(program):
        done = run_python("-c", _FAILING + program)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr.splitlines()

    return lines_of


_REFUSED = (
    "CompatibilityError: colorsys is only partly patched: 'first' has failed "
    "(LookupError: colorsys); start a new process"
)


@pytest.mark.parametrize(
    "cause",
    [
        'patch.schedule([first, second])\nattempt(__import__, "colorsys")',
        "import colorsys\nattempt(patch.schedule, [first, second])",
    ],
)
def test_an_error_in_a_patch_fails_the_import_and_each_install_after_it(
    lines_of, cause
):
    lines, _ = lines_of(f"{cause}\nattempt(estimator_runtime.install)")
    assert lines == ["LookupError: colorsys", _REFUSED]


def test_a_patch_that_is_not_required_fails_with_a_line_and_lets_the_import_be(
    lines_of,
):
    lines, errors = lines_of("""
patch.schedule([first, second], are_required=False)
import colorsys
report()
estimator_runtime.install()
""")
    assert lines == ["failed (LookupError: colorsys); applied; 1"]
    assert errors == [
        "first cannot be patched on this TensorFlow, and stays as it is (a test): "
        "LookupError: colorsys"
    ]
