"""Brings the runtime in when this process first imports TensorFlow, and not before.

Each start of python may import this, so it imports nothing itself, and it stands alone:
`estimator-runtime enable` puts a copy into site-packages, which has to be harmless also
when the package is gone, or when a version of python that it never saw comes by.
"""

import _thread
import os
import sys

_WATCHED = ("tensorflow", "tensorflow_estimator")
_lock = _thread.RLock()


class _Watcher(object):  # noqa: UP004 - see above
    # It stays where it is: other threads that import something go along sys.meta_path,
    # and would miss a finder if it got shorter.
    is_done = False

    def find_spec(self, name, path=None, target=None):
        if name not in _WATCHED:
            return None
        with _lock:
            if not self.is_done:
                self.is_done = True
                _install()
        # install() put finders before this one; they are not asked any more today.
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec is not None:
                return spec
        return None


def _install():
    try:
        from estimator_runtime import install

        install()
    except Exception as error:  # noqa: BLE001 - the program may not need Estimators
        if getattr(error, "name", None) != "estimator_runtime":  # uninstalled
            sys.stderr.write("estimator-runtime: not activated: %s\n" % (error,))  # noqa: UP031


def watch():
    """Wait for TensorFlow, unless ESTIMATOR_RUNTIME_AUTO is 0."""
    if os.environ.get("ESTIMATOR_RUNTIME_AUTO") != "0":
        watch_as_parent_does()


def watch_as_parent_does():
    """Wait for TensorFlow in a child of a process that has the runtime."""
    if not any(type(each).__name__ == "_Watcher" for each in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())
