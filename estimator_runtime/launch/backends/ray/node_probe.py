"""The probe of what is installed on a node, made before any task is started there.

Ray sends the code of this module to the node, as this package may be missing there: the
probe finds that out. Therefore it uses only the standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

# What a task would find: in a new Python process, in the tasks' working directory, but
# importing nothing from that folder.
_PROGRAM = """
import sys
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
import json, platform
found = {"Python": ".".join(platform.python_version_tuple()[:2])}
try:
    import estimator_runtime
    from estimator_runtime.tf_internals import versions
except ImportError:
    pass
else:
    found["estimator_runtime"] = estimator_runtime.__version__
    try:
        found["TensorFlow"] = versions.tensorflow_version()
    except ImportError:
        pass
print(json.dumps(found))
"""
_NEEDED = ("Python", "estimator_runtime", "TensorFlow")
_SECS = 60.0
# Without this, Python 3.13 imports linecache before it runs the first line of a `-c`
# program.
_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()


def probe(folder: str) -> dict[str, str] | None:
    """Return what is installed on the machine that this runs on.

    Args:
        folder: The working directory of the tasks.

    Returns:
        The versions of Python, estimator_runtime and TensorFlow by these names, without
        those that are missing. None if the folder does not exist.

    Raises:
        subprocess.SubprocessError: If the new Python process fails or hangs.
        OSError: If it cannot be started.
    """
    if not os.path.isdir(folder):
        return None
    answer = subprocess.run(
        [sys.executable, *_SAFE_PATH, "-c", _PROGRAM],
        cwd=folder,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=_SECS,
        check=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def difference(
    node: Mapping[str, str], other: Mapping[str, str], who: str = "this machine"
) -> str | None:
    """Return what a node lacks, or how it differs from another machine, or None.

    What only the other machine lacks does not count, as it may not run any task.

    Args:
        node: What `probe` has found on the node.
        other: What it has found on the other machine.
        who: The name of the other machine, for the user.
    """
    for name in _NEEDED:
        has = other.get(name)
        if name not in node:
            why = "which tasks need" if has is None else f"and {who} has {has}"
            return f"has no {name}, {why}"
        if has not in (None, node[name]):
            return f"has {name} {node[name]}, and {who} {has}"
    return None
