"""Carries the runtime into the processes that this one starts.

A forked child inherits it. Any other is a bare interpreter, whose `import tensorflow`
would come without `tf.estimator`. One started by `multiprocessing` gets it with the
pickled description of its parent, which reaches it whatever variables and options it
is started with. One that the program starts itself finds it through its environment:
PYTHONPATH leads it to `startup/sitecustomize.py`, which acts in this same Python
installation only.
"""

import os
import pathlib
import sys

_STARTUP = str(pathlib.Path(__file__).parents[1] / "startup")
VARIABLE = "ESTIMATOR_RUNTIME_CHILDREN"

# What a child of multiprocessing executes. It has not taken its parent's sys.path yet,
# nor found out whether it needs Estimators: a Python without this package is none of
# our business.
_ARRIVAL = """
import sys
sys.path[:] = path
try:
    from estimator_runtime.compat import install
except ImportError:
    pass
else:
    install()
"""


def arm_environment(environ):
    """Let the interpreters that inherit `environ` call `install()` when it is time.

    Args:
        environ: `os.environ`, or a dict that a child is going to get.
    """
    path = environ.get("PYTHONPATH")
    if _STARTUP not in (path or "").split(os.pathsep):
        environ["PYTHONPATH"] = os.pathsep.join(
            [_STARTUP, path] if path else [_STARTUP]
        )
    environ[VARIABLE] = sys.prefix


def arm_spawn(spawn):
    """Let the children that multiprocessing describes call `install()` first."""
    describe = spawn.get_preparation_data

    def get_preparation_data(name):
        # A child ignores the keys it does not know, but it unpickles them.
        description = describe(name)
        path = list(description.get("sys_path", sys.path))
        return {**description, "estimator_runtime": _Arrival(path)}

    spawn.get_preparation_data = get_preparation_data


class _Arrival:
    """Prepares the process in which it is unpickled.

    By names of Python's own: those of this package a child may not be able to import
    before it has its parent's sys.path.
    """

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return exec, (_ARRIVAL, {"path": self._path})
