"""Carries the runtime into the processes that `multiprocessing` spawns.

A forked child inherits it. A spawned one (or one of the fork server) is a bare
interpreter that imports the script again, and its `import tensorflow` would come
without `tf.estimator`. The parent sends each child a pickled description of itself
before anything else; the runtime travels in it, because that is the one thing which
reaches every child without a variable or an option that the script could see.
"""

import multiprocessing.spawn

from estimator_runtime.compat import install


def arm():
    """Let the children spawned from now on, and theirs, call `install()` first."""
    describe = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name):
        # A child ignores the keys it does not know, but it unpickles them.
        return {**describe(name), "estimator_runtime": _Arrival()}

    multiprocessing.spawn.get_preparation_data = get_preparation_data


class _Arrival:
    """Prepares the process in which it is unpickled."""

    def __reduce__(self):
        return _arrive, ()


def _arrive():
    install()
    arm()
