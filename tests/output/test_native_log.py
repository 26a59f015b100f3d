"""Where C++ lines are hidden, and whether a machine has a GPU."""

import os
import sys

from estimator_runtime.output import native_log, relay


def test_a_gpu_is_there_when_its_device_file_is(tmp_path):
    patterns = (str(tmp_path / "nvidia[0-9]*"), str(tmp_path / "kfd"))
    (tmp_path / "nvidiactl").touch()  # of a driver that found none
    assert not native_log.has_gpu(patterns)
    (tmp_path / "nvidia0").touch()
    assert native_log.has_gpu(patterns)


def test_the_first_process_of_a_container_keeps_its_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    started = []
    monkeypatch.setattr(relay, "start", lambda **options: started.append(options))
    native_log.quieten({})
    assert started == []
