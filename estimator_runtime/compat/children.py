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
        return {**describe(name), "estimator_runtime": _Arrival()}

    spawn.get_preparation_data = get_preparation_data


class _Arrival:
    """Prepares the process in which it is unpickled."""

    def __reduce__(self):
        from estimator_runtime.compat import install

        return install, ()
