"""Start-up module for the children of a process with the runtime, on PYTHONPATH.

Python imports a module of this name at start-up. This one comes before the
environment's own, if there is one, and imports that after its work. Any Python may
find it, including one of another environment, which it leaves as it is.
"""

import os
import sys


def _start():
    folder = os.path.dirname(os.path.abspath(__file__))
    home = os.environ.get("ESTIMATOR_RUNTIME_CHILDREN")
    if home == sys.prefix:
        import _estimator_runtime_startup  # type: ignore[import-not-found]

        _estimator_runtime_startup.watch_as_parent_does()
    elif home and os.environ.pop("ESTIMATOR_RUNTIME_LEGACY_KERAS", None):
        # The choice of the process that has the runtime: here there may be no tf-keras.
        os.environ.pop("TF_USE_LEGACY_KERAS", None)
    # The program's imports and its sys.path are as without it.
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != folder]
    _import_own()


def _import_own():
    stand_in = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if getattr(error, "name", __name__) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, stand_in)


_start()
