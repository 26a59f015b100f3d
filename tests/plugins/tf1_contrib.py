"""Provides the original `tf.contrib` to tests, fetched once for all of them."""

import fcntl
import pathlib
import tempfile

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
        folder = pathlib.Path(tempfile.gettempdir(), f"{wheel.PACKAGE}-{wheel.VERSION}")
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            environ = {wheel.FOLDER_VARIABLE: str(folder)}
            try:
                if not (folder / "LICENSE").is_file():
                    wheel.install([], None, environ)
            except EstimatorRuntimeError as error:
                pytest.skip(f"the original tf.contrib cannot be fetched: {error}")
    return {wheel.FOLDER_VARIABLE: str(folder)}
