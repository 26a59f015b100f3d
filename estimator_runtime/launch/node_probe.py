"""What a node of a cluster has installed; asked before anything is started there.

The source of this goes to the node, which may not have this package: that is one of the
answers. So it needs the standard library only.
"""

import json
import os
import subprocess
import sys

# As a task would find it: in a new Python, in the folder of the tasks.
_PROGRAM = """
import json, platform
found = {"Python": ".".join(platform.python_version_tuple()[:2])}
try:
    import estimator_runtime
    from estimator_runtime.compat import versions
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
_SECS = 60.0


def probe(folder):
    """Tell about the machine that this runs on.

    Args:
        folder: The folder that tasks are to run in.

    Returns:
        Name to version of what is there: Python, estimator_runtime, TensorFlow. None if
        the folder is not.
    """
    if not os.path.isdir(folder):
        return None
    answer = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=folder,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=_SECS,
        check=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def difference(node, here):
    """Say how a node differs from this machine; None if it does not.

    Args:
        node: What `probe` found there.
        here: What it found here.
    """
    for name, version in here.items():
        if name not in node:
            return f"has no {name}, and this machine has {version}"
        if node[name] != version:
            return f"has {name} {node[name]}, and this machine {version}"
    return None
