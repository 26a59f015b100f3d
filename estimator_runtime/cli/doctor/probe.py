"""What TensorFlow itself says: which names and which devices it has.

It is asked in a child process, because its import takes seconds and may crash.

The child runs `main` of this module, with the module search path that a script under
`estimator-runtime run` has. So it also finds a `tensorflow.py` beside the script.
"""

import gc
import importlib
import json
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from estimator_runtime.cli.doctor.finding import OK, PROBLEM, Finding
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.patching.injection.children import helper_command
from estimator_runtime.patching.report import report

DEADLINE_SECS = 120.0


def ask(
    names: Iterable[str],
    first_path: str | None = None,
    timeout_secs: float = DEADLINE_SECS,
) -> dict[str, Any]:
    """Return what TensorFlow has, from a child process that imports it.

    Args:
        names: Dotted names to look up, such as "tensorflow.estimator.RunConfig".
        first_path: Folder that is searched for modules first, or None.
        timeout_secs: Seconds that the child may take.

    Returns:
        A dict with these keys:
            "devices": a list of dicts with "name", "type" and "details".
            "cuda": whether TensorFlow was built with CUDA.
            "missing": each missing name to its shortest prefix that does not exist.
            "v1": each missing name of TensorFlow to whether `tf.compat.v1` has it.
            "missing_in_v1": each of those that it lacks, too, to its shortest prefix
                that does not exist there either.
            "patches": the name of each patch to its "state" in a process that has used
                `tf.estimator`, and its "reason".

    Raises:
        EstimatorRuntimeError: If the child fails, or takes too long.
    """
    path = [*([first_path] if first_path else []), *sys.path]
    try:
        done = subprocess.run(
            helper_command(__name__),
            input=json.dumps([path, list(names)]),
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_secs,
        )
    except subprocess.TimeoutExpired as error:
        raise EstimatorRuntimeError(
            f"importing TensorFlow took longer than {timeout_secs:g} s, and was ended; "
            f"see where it waits: {sys.executable} -v -c 'import tensorflow'"
        ) from error
    if done.returncode:
        raise EstimatorRuntimeError(_failure(done))
    return json.loads(done.stdout.splitlines()[-1])


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines() or ["no output"]
    if done.returncode < 0:
        return (
            f"importing TensorFlow ended its process by signal {-done.returncode} "
            f"({lines[-1]}); an 'Illegal instruction' (4) means a wheel built for a "
            "newer processor: install another TensorFlow"
        )
    return (
        f"importing TensorFlow fails: {lines[-1]}; see all of it: "
        f"{sys.executable} -c 'import tensorflow'"
    )


def examine_devices(
    answer: Mapping[str, Any],
    environ: Mapping[str, str],
    nvidia_devices: Sequence[str] | None = None,
) -> Finding:
    """Check which devices TensorFlow sees.

    Args:
        answer: The answer of `ask`.
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
        return Finding(OK, "devices", f"{cpus}, {names}", facts)
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
        return Finding(PROBLEM, "devices", text, facts)
    why = f" (CUDA_VISIBLE_DEVICES is {hidden!r})" if nvidia_devices else ""
    text = f"{cpus}, no GPU{why}"
    return Finding(OK, "devices", text, facts)


def main(_arguments: list[str]) -> NoReturn:
    """Run the child process: print the answer as one line of JSON.

    The module search path and the names come from standard input, as JSON.
    """
    # The collector finds little to free among what the imports make, and takes a
    # quarter of their time.
    gc.disable()
    sys.path[:], names = json.load(sys.stdin)
    importlib.import_module("estimator_runtime").install()
    tf = importlib.import_module("tensorflow")
    # Loads tensorflow-estimator, upon which most patches are applied.
    _ = tf.estimator.Estimator
    patched = report()
    missing = {name: _first_missing(name) for name in names}
    missing = {name: part for name, part in missing.items() if part}
    in_v1 = {
        name: _first_missing_in_v1(name)
        for name in missing
        if name.startswith("tensorflow.")
    }
    answer = {
        "devices": [
            {
                "name": each.name.removeprefix("/physical_device:"),
                "type": each.device_type,
                "details": _details(tf, each),
            }
            for each in tf.config.list_physical_devices()
        ],
        "cuda": tf.test.is_built_with_cuda(),
        "missing": missing,
        "v1": {name: part is None for name, part in in_v1.items()},
        "missing_in_v1": {name: part for name, part in in_v1.items() if part},
        "patches": {
            name: {"state": state, "reason": patched.reasons[name]}
            for name, state in patched.patches.items()
        },
    }
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()
    os._exit(0)  # Python would clear each module first


def _details(tf: Any, device: Any) -> dict[str, str]:
    details = tf.config.experimental.get_device_details(device)
    return {key: str(value) for key, value in details.items()}


def _first_missing(name: str) -> str | None:
    """Return the shortest prefix of a dotted name that does not exist, or None."""
    first, *rest = name.split(".")
    value: Any = importlib.import_module(first)
    for index, part in enumerate(rest):
        if not isinstance(value, types.ModuleType):
            return None  # attributes of classes and objects may be set at run time
        so_far = ".".join([first, *rest[: index + 1]])
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(so_far)
            except ImportError:
                return so_far
    return None


def _first_missing_in_v1(name: str) -> str | None:
    rest = name.removeprefix("tensorflow.").removeprefix("compat.v1.")
    part = _first_missing(f"tensorflow.compat.v1.{rest}")
    return part and f"tensorflow.{part.removeprefix('tensorflow.compat.v1.')}"
