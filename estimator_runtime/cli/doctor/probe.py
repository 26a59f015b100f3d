"""What TensorFlow itself says: which names and which devices it has.

It is asked in a child process, because its import takes seconds and may crash. The
child runs `main` of this module, with the module search path that a script under
`estimator-runtime run` has. So it also finds a `tensorflow.py` beside the script.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.patching import patch
from estimator_runtime.patching.injection.children import helper_command
from estimator_runtime.patching.report import report
from estimator_runtime.patching.table import TF1_PATCHES
from estimator_runtime.tf1 import moved

DEADLINE_SECS = 120.0
_CONTRIB = "tensorflow.contrib."


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What TensorFlow says.

    Attributes:
        devices: A dict with "name", "type" and "details" for each device.
        cuda: The version of CUDA that TensorFlow was built for, or None.
        loaded: The names of the libraries that TensorFlow has loaded to look for GPUs,
            such as "libcublas".
        missing: Each missing name to its shortest prefix that does not exist.
        of_version_1: The missing names that TensorFlow 1 mode has, to an empty string,
            and those of `tf.contrib` that it lacks, to the reason.
        patches: The name of each patch to its "state" in a process that has used
            `tf.estimator`, and its "reason".
        report: The versions and the patches as text.
    """

    devices: Sequence[Mapping[str, Any]]
    cuda: str | None
    loaded: Sequence[str]
    missing: Mapping[str, str]
    of_version_1: Mapping[str, str]
    patches: Mapping[str, Mapping[str, str]]
    report: str


def ask(
    names: Iterable[str],
    first_path: str | None = None,
    timeout_secs: float = DEADLINE_SECS,
) -> ProbeResult:
    """Return the answer of a child process that imports TensorFlow.

    Args:
        names: Dotted names to look up, such as "tensorflow.estimator.RunConfig".
        first_path: Folder that is searched for modules first, or None.
        timeout_secs: Seconds that the child may take.

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
    return ProbeResult(**json.loads(done.stdout.splitlines()[-1]))


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
    lacks = {name: _first_missing(name, importlib.import_module) for name in names}
    missing = {name: each[0] for name, each in lacks.items() if each}
    of_version_1 = {}
    # They restore names that tf.contrib imports, and TensorFlow 2 does not have.
    if missing:
        patch.schedule(TF1_PATCHES, are_required=False)
    facade: Any = importlib.import_module("estimator_runtime.tf1.facade")
    for name in missing:
        why = ""
        if name.startswith("tensorflow.") and not name.startswith(moved.RESTORED):
            part, why = _first_missing(name, facade.import_module) or ("", "")
            # TensorFlow 1 has the first part of `tf.layers.nosuch`.
            missing[name] = max(missing[name], part, key=len)
        if not why or f"{name}.".startswith(_CONTRIB):
            of_version_1[name] = why
    answer = ProbeResult(
        devices=[
            {
                "name": each.name.removeprefix("/physical_device:"),
                "type": each.device_type,
                "details": _details(tf, each),
            }
            for each in tf.config.list_physical_devices()
        ],
        cuda=tf.sysconfig.get_build_info().get("cuda_version"),
        # After the devices, for which they are loaded.
        loaded=_loaded_libraries(),
        missing=missing,
        of_version_1=of_version_1,
        patches={
            name: {"state": state, "reason": patched.reasons[name]}
            for name, state in patched.patches.items()
        },
        report=str(patched),
    )
    sys.stdout.write(f"{json.dumps(dataclasses.asdict(answer))}\n")
    sys.stdout.flush()
    os._exit(0)  # Python would clear each module first


def _loaded_libraries() -> list[str]:
    """Return the names of the shared libraries of this process, without versions."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    files = {line.rpartition("/")[2] for line in lines if ".so" in line}
    return sorted({file.partition(".")[0] for file in files})


def _details(tf: Any, device: Any) -> dict[str, str]:
    details = tf.config.experimental.get_device_details(device)
    return {key: str(value) for key, value in details.items()}


def _first_missing(
    name: str, import_module: Callable[[str], types.ModuleType]
) -> tuple[str, str] | None:
    """Return the shortest prefix of a dotted name that does not exist, and why.

    Args:
        name: The name.
        import_module: Imports the modules that it is looked up in.

    Returns:
        None if the name exists.
    """
    first, *rest = name.split(".")
    value: Any = import_module(first)
    for index, part in enumerate(rest):
        if not isinstance(value, types.ModuleType):
            return None  # attributes of classes and objects may be set at run time
        so_far = ".".join([first, *rest[: index + 1]])
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError) as error:
            try:
                value = import_module(so_far)
            except ImportError:
                return so_far, str(error)
    return None
