"""Reports reach the launcher, whatever a program does with its descriptors."""

import json
import os

import pytest

from estimator_runtime import reporting
from estimator_runtime.reporting import Reporter, StepWatch


@pytest.fixture
def pipe():
    """Return (the reading end of a pipe, the path of its writing end)."""
    reader, writer = os.pipe()
    yield reader, f"/proc/self/fd/{writer}"
    os.close(reader)
    os.close(writer)


def _descriptors():
    return {int(each) for each in os.listdir("/proc/self/fd")}


@pytest.mark.parametrize("becomes_a_file", [True, False])
def test_a_descriptor_that_the_program_has_taken_gets_no_report(
    becomes_a_file, pipe, tmp_path
):
    reader, path = pipe
    before = _descriptors()
    reporter = Reporter(path, StepWatch(0))
    [own] = _descriptors() - before
    assert own >= 512  # which os.closerange(3, 256) leaves alone
    assert not os.get_inheritable(own)
    reporter.flush()  # nothing is being written while the descriptor changes
    os.close(own)
    with open(tmp_path / "of the program", "w") as file:
        if becomes_a_file:
            os.dup2(file.fileno(), own, inheritable=False)
        reporter.send({"step": 3})
        reporter.close()
        assert os.path.getsize(file.name) == 0
        if becomes_a_file:
            os.close(own)
    lines = os.read(reader, 65536).splitlines()
    assert {"step": 3} in map(json.loads, lines)
    assert json.loads(lines[-1]) == {"ending": True}


def test_only_the_process_that_the_launcher_has_started_reports(pipe, monkeypatch):
    _, path = pipe
    monkeypatch.setattr(reporting, "_reporter", None)
    for pid in (os.getppid(), ""):
        reporting.start({"ESTIMATOR_RUNTIME_REPORTS": f"{pid}:{path}"})
        assert not reporting.is_on()
