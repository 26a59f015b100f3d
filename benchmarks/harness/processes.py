"""Runs whole programs, each in processes of its own, and measures them."""

import dataclasses
import importlib.metadata
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What a program took that has ended with status 0.

    Attributes:
        wall_secs: Seconds from its command to its exit.
        cpu_secs: CPU seconds of the process and of those that it started and awaited.
        peak_mb: The most memory that any one of them had at once, in MB. Linux counts
            the memory of the process that calls `run`, too: keep that one small.
        output: What it wrote to stdout and stderr.
    """

    wall_secs: float
    cpu_secs: float
    peak_mb: float
    output: str


def has_estimator():
    """Return whether the installed TensorFlow brings Estimators of its own."""
    # Asked without an import: the memory of this process is wanted for the programs.
    version = importlib.metadata.version("tensorflow")
    return tuple(map(int, version.split(".")[:2])) < (2, 16)


def environ():
    """Return the environment of a program that finds the runtime of this checkout."""
    found = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    # What this process has set for itself, to run on newer TensorFlows.
    found.pop("TF_USE_LEGACY_KERAS", None)
    found.pop("ESTIMATOR_RUNTIME_CHILDREN", None)  # else stock has the runtime too
    return found


def run(command, variables, timeout_secs):
    """Run a program to its end.

    Args:
        command: The program and its arguments.
        variables: The whole environment.
        timeout_secs: After this time, the program and all that it started are killed.

    Returns:
        A `Run`.

    Raises:
        RuntimeError: If it does not end with status 0; with the end of its output.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        killer = threading.Timer(timeout_secs, os.killpg, (process.pid, signal.SIGKILL))
        killer.start()
        try:
            # Unlike `wait`, this says what that very process has used.
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            killer.cancel()
        wall_secs = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)} ended with status {process.returncode} after "
            f"{wall_secs:.0f} s, of {timeout_secs} s at most:\n{text[-3000:]}"
        )
    return Run(
        wall_secs=wall_secs,
        cpu_secs=usage.ru_utime + usage.ru_stime,
        peak_mb=usage.ru_maxrss / 1024,
        output=text,
    )
