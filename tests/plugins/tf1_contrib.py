"""Provides the original `tf.contrib` to tests, fetched once for all of them."""

import fcntl
import os
import pathlib
import tempfile
import time

import pytest

from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.tf1.contrib import wheel


@pytest.fixture(scope="session")
def original_contrib():
    """Return the variable that leads a process to the original `tf.contrib`.

    It is that of the environment, if it is installed there. Otherwise the first test
    process that needs it runs `tf1 install`; where that fails, the tests are skipped.
    """
    folder = wheel.find()
    if folder is None:
        name = f"{wheel.PACKAGE}-{wheel.VERSION}-{os.getuid()}"
        folder = pathlib.Path(tempfile.gettempdir(), name)
        os.environ.setdefault("PIP_RETRIES", "1")  # a test may not wait for minutes
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            environ = {wheel.FOLDER_VARIABLE: str(folder)}
            failure = folder.with_name(f"{folder.name}.failed")
            try:
                if failure.exists() and time.time() - failure.stat().st_mtime < 600:
                    pytest.skip(failure.read_text())  # as another process has found
                if not (folder / "LICENSE").is_file():
                    wheel.install([], None, environ)
            except EstimatorRuntimeError as error:
                reason = f"the original tf.contrib cannot be fetched: {error}"
                failure.write_text(reason)
                pytest.skip(reason)
    return {wheel.FOLDER_VARIABLE: str(folder)}
