"""Programs that are measured from the command to the exit."""

import json
import os
import subprocess
import sys
import time

import pytest

from benchmarks.harness import processes


def _run(code, timeout_secs=60):
    return processes.run([sys.executable, "-c", code], dict(os.environ), timeout_secs)


def test_a_run_has_the_time_and_memory_of_the_program_and_all_that_it_wrote():
    program = (
        "import sys, time\n"
        "held = bytearray(200_000_000)\n"
        "while time.process_time() < 0.3: pass\n"
        "time.sleep(0.3)\n"
        "print('out', flush=True); print('err', file=sys.stderr)"
    )
    # In a small process of its own: Linux counts the memory of the process that starts
    # a program as the program's, and this one may have TensorFlow and a long history.
    measure = (
        "import dataclasses, json, os, sys\n"
        "from benchmarks.harness import processes\n"
        f"done = processes.run([sys.executable, '-c', {program!r}], os.environ, 60)\n"
        "print(json.dumps(dataclasses.asdict(done)))"
    )
    start = time.perf_counter()
    printed = subprocess.check_output(
        [sys.executable, "-c", measure], env=processes.environ()
    )
    done = processes.Run(**json.loads(printed))
    assert 0.6 <= done.wall_secs <= time.perf_counter() - start
    assert 0.3 <= done.cpu_secs < done.wall_secs
    assert 190 < done.peak_mb < 300
    assert done.output == "out\nerr\n"


def test_a_program_that_fails_is_no_figure():
    with pytest.raises(
        RuntimeError, match=r" ended with status 3 after .*\nthe reason"
    ):
        _run("print('the reason', flush=True); raise SystemExit(3)")


def test_a_program_does_not_inherit_the_runtime_of_the_benchmark(monkeypatch):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_CHILDREN", "folder")
    assert "ESTIMATOR_RUNTIME_CHILDREN" not in processes.environ()
