"""The devices that TensorFlow sees, and the GPUs that it should see."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from estimator_runtime.cli.doctor.finding import OK, PROBLEM, Finding


def examine(
    answer: Mapping[str, Any],
    environ: Mapping[str, str],
    nvidia_devices: Sequence[str] | None = None,
) -> Finding:
    """Check which devices TensorFlow sees.

    Args:
        answer: The answer of `probe.ask`.
        environ: The environment, such as `os.environ`.
        nvidia_devices: The device files of the machine's NVIDIA GPUs; None for those in
            /dev.
    """
    if nvidia_devices is None:
        nvidia_devices = sorted(map(str, pathlib.Path("/dev").glob("nvidia[0-9]*")))
    gpus = [each for each in answer["devices"] if each["type"] == "GPU"]
    cores = len(os.sched_getaffinity(0))
    facts = {"devices": answer["devices"], "cpu_cores": cores}
    cpus = f"{cores} CPU {'core' if cores == 1 else 'cores'}"
    if gpus:
        names = ", ".join(
            f"{each['name']} ({each['details'].get('device_name', 'unknown kind')})"
            for each in gpus
        )
        return Finding(about="devices", state=OK, text=f"{cpus}, {names}", facts=facts)
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    if nvidia_devices and hidden is None:
        remedy = (
            "compare the driver of nvidia-smi with what this TensorFlow needs, or: "
            "pip install 'tensorflow[and-cuda]'"
            if answer["cuda"]
            else "this TensorFlow was built without CUDA: pip install "
            "'tensorflow[and-cuda]'"
        )
        text = f"{nvidia_devices[0]} is there, but TensorFlow sees no GPU; {remedy}"
        return Finding(about="devices", state=PROBLEM, text=text, facts=facts)
    why = f" (CUDA_VISIBLE_DEVICES is {hidden!r})" if nvidia_devices else ""
    text = f"{cpus}, no GPU{why}"
    return Finding(about="devices", state=OK, text=text, facts=facts)
