"""What a node of a cluster has installed; asked before anything is started there.

The source of this goes to the node, which may not have this package: that is one of the
answers. So it needs the standard library only.
"""

import json
import os
import subprocess
import sys

# As a task would find it: in a new Python, in the folder of the tasks, but importing
# nothing from that folder.
_PROGRAM = """
import sys
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
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
_NEEDED = ("Python", "estimator_runtime", "TensorFlow")
_SECS = 60.0
# Without it, Python 3.13 imports linecache before the first line of a `-c` is run.
_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()


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
        [sys.executable, *_SAFE_PATH, "-c", _PROGRAM],
        cwd=folder,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=_SECS,
        check=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def difference(node, other, who="this machine"):
    """Say what a node lacks, or how it differs from another machine; None if it is fit.

    What only the other lacks is no difference: no task may run there.

    Args:
        node: What `probe` found there.
        other: What it found on the other.
        who: What to call that.
    """
    for name in _NEEDED:
        has = other.get(name)
        if name not in node:
            why = "which tasks need" if has is None else f"and {who} has {has}"
            return f"has no {name}, {why}"
        if has not in (None, node[name]):
            return f"has {name} {node[name]}, and {who} {has}"
    return None
