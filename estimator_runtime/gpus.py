"""Whether this machine has a GPU; nothing of TensorFlow is asked."""

import glob

# Of NVIDIA's driver, of AMD's, and of either in a Linux under Windows.
_DEVICES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")


def are_here(patterns=_DEVICES):
    """Tell whether one of the device files is there that a GPU has."""
    return any(glob.glob(pattern) for pattern in patterns)
