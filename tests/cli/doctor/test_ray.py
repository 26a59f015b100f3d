"""The line about Ray: which is installed, and whether it is too old."""

import pathlib
import re

import pytest

from estimator_runtime.cli.doctor.packages import examine_ray

SETUP = (pathlib.Path(__file__).parents[3] / "setup.cfg").read_text()
OLDEST = re.search(r"^    ray>=(\S+)$", SETUP, re.M)[1]


@pytest.mark.parametrize(
    ("version", "state", "text"),
    [
        (OLDEST, "ok", f"ray {OLDEST}"),
        (
            "2.9.3",
            "note",
            "ray 2.9.3: older than what was tested; for jobs on Ray, pip install "
            f"'ray>={OLDEST}'",
        ),
    ],
)
def test_a_ray_is_held_against_the_oldest_that_was_tested(
    tmp_path, monkeypatch, version, state, text
):
    metadata = tmp_path / f"ray-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = examine_ray()
    assert (found.state, found.text) == (state, text)
    assert found.facts == {"version": version}
