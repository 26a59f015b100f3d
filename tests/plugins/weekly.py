"""Marks the tests that CI leaves out, from tests/weekly.txt."""

import pathlib

import pytest

_TESTS = pathlib.Path(__file__).parents[1]
LINES = [
    line
    for line in _TESTS.joinpath("weekly.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
_UNUSED = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)  # Before pytest selects by marker.
def pytest_collection_modifyitems(items, config):
    """Mark the tests, and store the lines that match none."""
    names = []
    for item in items:
        path = item.path.relative_to(_TESTS).as_posix()
        names.append(f"{path}::{item.nodeid.partition('::')[2]}")
        if names[-1].startswith(tuple(LINES)):
            item.add_marker("weekly")
    if not any("::" in each for each in config.args):  # Whole files were collected.
        files = {name.partition("::")[0] for name in names}
        config.stash[_UNUSED] = [
            line
            for line in LINES
            if line.partition("::")[0] in files
            and not any(name.startswith(line) for name in names)
        ]


@pytest.fixture
def unused_weekly_lines(request):
    """Return the lines that match no test, of those whose files were collected."""
    return request.config.stash.get(_UNUSED, [])
