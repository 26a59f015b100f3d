"""Asks TensorFlow, in a child process: importing it takes seconds, and may crash.

The child is this module's `main`, on the module search path that a script under
`estimator-runtime run` would have: a `tensorflow.py` beside the script is found too.
"""

import importlib
import json
import os
import subprocess
import sys
import types

from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.helper_process import helper_command

DEADLINE_SECS = 120.0


def ask(names, first_path=None, timeout_secs=DEADLINE_SECS):
    """Let a child install the runtime, import TensorFlow, and look.

    Args:
        names: Dotted names to look up, such as "tensorflow.estimator.RunConfig".
        first_path: Folder that is searched for modules first, or None.
        timeout_secs: Seconds that the child may take.

    Returns:
        A dict: "devices", each a dict with "name", "type" and "details"; "cuda",
        whether TensorFlow was built for it; "missing", name to the part of it that
        there is none of; "v1", name to whether `tf.compat.v1` has it, of those missing.

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


def _failure(done):
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


def main(_arguments: list[str]) -> int:
    """Be the child: print the answer as one line of JSON."""
    sys.path[:], names = json.load(sys.stdin)
    importlib.import_module("estimator_runtime").install()
    tf = importlib.import_module("tensorflow")
    # Loads the frozen package, with which most patches are applied.
    _ = tf.estimator.Estimator
    missing = {name: _first_missing(name) for name in names}
    missing = {name: part for name, part in missing.items() if part}
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
        "v1": {
            name: _is_in_v1(name) for name in missing if name.startswith("tensorflow.")
        },
    }
    sys.stdout.write(f"{json.dumps(answer)}\n")
    return 0


def _details(tf, device):
    details = tf.config.experimental.get_device_details(device)
    return {key: str(value) for key, value in details.items()}


def _first_missing(name):
    """Give the first part of a dotted name that there is none of, or None."""
    first, *rest = name.split(".")
    value = importlib.import_module(first)
    for index, part in enumerate(rest):
        if not isinstance(value, types.ModuleType):
            return None  # what a class or an object has, only the program knows
        so_far = ".".join([first, *rest[: index + 1]])
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(so_far)
            except ImportError:
                return so_far
    return None


def _is_in_v1(name):
    rest = name.removeprefix("tensorflow.").removeprefix("compat.v1.")
    return _first_missing(f"tensorflow.compat.v1.{rest}") is None
