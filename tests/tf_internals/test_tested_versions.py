"""The versions that the package knows are those of the repository's constraints."""

import pathlib

import pytest

from estimator_runtime.tf_internals import versions

ROOT = pathlib.Path(__file__).parents[2]
CONSTRAINTS = {
    versions.parse(path.stem.removeprefix("tf-")): path
    for path in (ROOT / "constraints").glob("tf-*.txt")
}


def pinned(path):
    """Package to its versions, one for each Python that needs another."""
    found = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            name, _, version = line.partition(" ;")[0].partition("==")
            found.setdefault(name, []).append(version)
    return found


def test_every_tensorflow_from_the_oldest_to_the_newest_has_constraints():
    assert sorted(CONSTRAINTS) == [(2, minor) for minor in range(15, 22)]
    oldest, *_, newest = sorted(CONSTRAINTS)
    assert (oldest, newest) == (versions.OLDEST, versions.NEWEST_TESTED)


@pytest.mark.parametrize("tensorflow", sorted(CONSTRAINTS))
def test_the_documentation_has_what_the_constraints_pin(tensorflow):
    text = (ROOT / "docs" / "compatibility.md").read_text()
    found = pinned(CONSTRAINTS[tensorflow])
    [version], [protobuf] = found["tensorflow"], found["protobuf"]
    assert versions.parse(version) == tensorflow
    [row] = [line for line in text.splitlines() if line.startswith(f"| {version} |")]
    _, _, pythons, numpy, protobuf_there, *_ = map(str.strip, row.split("|"))
    assert pythons and numpy in found["numpy"] and protobuf_there == protobuf
