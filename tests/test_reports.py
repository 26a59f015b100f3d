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


def test_a_reporter_holds_no_descriptor_that_the_program_could_take(pipe):
    reader, path = pipe
    before = set(os.listdir("/proc/self/fd"))
    reporter = Reporter(path, StepWatch(0))
    reporter.flush()
    assert set(os.listdir("/proc/self/fd")) == before
    reporter.send({"step": 3})
    reporter.close()
    lines = os.read(reader, 65536).splitlines()
    assert {"step": 3} in map(json.loads, lines)
    assert json.loads(lines[-1]) == {"ending": True}


def test_only_the_process_that_the_launcher_has_started_reports(pipe, monkeypatch):
    _, path = pipe
    monkeypatch.setattr(reporting, "_reporter", None)
    for pid in (os.getppid(), ""):
        reporting.start({"ESTIMATOR_RUNTIME_REPORTS": f"{pid}:{path}"})
        assert not reporting.is_on()
