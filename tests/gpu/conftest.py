"""Skips the tests of this folder on a machine without an NVIDIA GPU.

With the variable REHEARSE_GPU_TESTS=1 they run there all the same, on the CPU.
"""

import glob
import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def device():
    """Return the device to train on: "GPU", or "CPU" in a rehearsal."""
    if os.environ.get("REHEARSE_GPU_TESTS") == "1":
        return "CPU"
    if not glob.glob("/dev/nvidia[0-9]*"):
        pytest.skip("this machine has no NVIDIA GPU")
    import tensorflow as tf

    # A GPU that TensorFlow does not see is a failure, not a reason to skip.
    assert tf.config.list_physical_devices("GPU"), "see estimator-runtime doctor"
    # The jobs below are other processes, and use the same GPU.
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    return "GPU"
