"""Provides the original `tf.contrib` to tests, fetched once for all of them.

A test is skipped if the package index does not answer within a minute: without a network,
and on one that drops packets. If it does answer, a failure to install is a failure.
"""

import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pytest

from estimator_runtime.tf1.contrib import wheel

# The smaller of the two wheels: half a megabyte.
_PROBE = "tensorflow-estimator==1.15.2"
_PROBE_SECS, _REMEMBERED_SECS = 60, 600
# pip waits this long for a host that does not answer, and for each piece of a file.
_PATIENCE = {"PIP_DEFAULT_TIMEOUT": "15", "PIP_RETRIES": "1"}


@pytest.fixture(scope="session")
def original_contrib(request):
    """Return the variable that leads a process to the original `tf.contrib`.

    It is that of the environment, if it is installed there. Otherwise the first test
    process that needs it runs `tf1 install`.
    """
    folder = wheel.find() or _shared(f"{wheel.PACKAGE}-{wheel.VERSION}")
    variable = {wheel.FOLDER_VARIABLE: str(folder)}
    if not (folder / wheel.EXAMPLES).is_dir():
        small_wheel = request.getfixturevalue("fetched_wheel")
        with _locked(folder), patience():
            if not (folder / wheel.EXAMPLES).is_dir():
                wheel.install([small_wheel], None, variable)
    return variable


@pytest.fixture(scope="session")
def fetched_wheel(tmp_path_factory):
    """Return the path of one of the two wheels, which proves that there is an index."""
    failure = _shared(f"{wheel.PACKAGE}-no-index")
    with _locked(failure):  # one process asks, and the others know
        if failure.exists() and _age(failure) < _REMEMBERED_SECS:
            pytest.skip(failure.read_text())
        folder = tmp_path_factory.mktemp("wheel")
        problem = _fetch(folder)
        if problem is not None:
            reason = f"the original tf.contrib cannot be fetched: {problem}"
            failure.write_text(reason)
            pytest.skip(reason)
        failure.unlink(missing_ok=True)
    (found,) = folder.glob("*.whl")
    return str(found)


def _fetch(folder):
    """Fetch the smaller wheel; return why that failed, or None."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*pip, "download", "--no-deps", "--dest", folder, _PROBE],
            env={**os.environ, **_PATIENCE},
            capture_output=True,
            text=True,
            timeout=_PROBE_SECS,
        )
    except subprocess.TimeoutExpired:
        return f"pip had no answer within {_PROBE_SECS} s"
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


@contextlib.contextmanager
def patience():
    """Make pip give up soon on a host that does not answer."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _PATIENCE.items():
            patch.setenv(name, value)
        yield


@contextlib.contextmanager
def _locked(path):
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _shared(name):
    """Return a path that all test processes of this user have."""
    return pathlib.Path(tempfile.gettempdir(), f"{name}-{os.getuid()}")


def _age(path):
    return time.time() - path.stat().st_mtime
