"""The tested sets that the package knows are those of the repository's constraints."""

import pathlib

import pytest

from estimator_runtime.tf_internals import versions
from estimator_runtime.tf_internals.versions import TESTED, PackageSet

ROOT = pathlib.Path(__file__).parents[2]


def constraints(tested):
    """Package to its versions, one for each Python that needs another."""
    found = {}
    for line in (ROOT / tested.constraints).read_text().splitlines():
        if not line.startswith("#"):
            name, _, version = line.partition(" ;")[0].partition("==")
            found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("tensorflow", TESTED)
def test_a_tested_set_is_what_its_constraints_pin(tensorflow):
    tested = TESTED[tensorflow]
    pinned = constraints(tested)
    assert versions.parse(tested.tensorflow) == tensorflow
    assert (pinned["tensorflow"], pinned["tf_keras"], pinned["protobuf"]) == (
        {tested.tensorflow},
        {tested.tf_keras},
        {tested.protobuf},
    )
    assert pinned["numpy"] == set(tested.numpy)


def test_every_tensorflow_from_the_oldest_to_the_newest_has_a_set():
    names = sorted(path.name for path in (ROOT / "constraints").glob("tf-*.txt"))
    assert names == [f"tf-2.{minor}.txt" for minor in range(15, 22)]
    assert list(TESTED) == [(2, minor) for minor in range(15, 22)]
    assert (min(TESTED), max(TESTED)) == (versions.OLDEST, versions.NEWEST_TESTED)


def test_pythons_are_those_that_the_documentation_says_were_run():
    text = (ROOT / "docs" / "compatibility.md").read_text()
    for tested in TESTED.values():
        pythons = ", ".join(tested.pythons)
        assert f"\n| {tested.tensorflow} | {pythons} | {tested.numpy[0]} | {tested.protobuf} |" in text  # fmt: skip


def test_each_difference_is_told_with_what_was_tested():
    tested = PackageSet(
        tensorflow="2.21.0", tf_keras="2.21.0", numpy=("2.4.6", "2.2.6"), protobuf="7.1"
    )
    same = {
        "python": "3.11.9",
        "tensorflow": "2.21.0",
        "tf-keras": "2.21.0",
        "numpy": "2.2.6",
        "protobuf": "7.1",
    }
    assert tested.differences(same) == []
    assert tested.differences({**same, "python": "3.13.1", "numpy": "1.26.4"}) == [
        "numpy 1.26.4 instead of 2.4.6 or 2.2.6",
        "python 3.13 instead of 3.11 or 3.12",
    ]
