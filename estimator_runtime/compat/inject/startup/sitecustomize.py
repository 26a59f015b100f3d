"""Found by the children of a process that has the runtime, along PYTHONPATH.

Python imports a module of this name as it starts. This one stands in front of the
environment's own, if there is one, and steps aside once it has done its work. It may
be met by any python, also by one of another environment, which it leaves alone.
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
