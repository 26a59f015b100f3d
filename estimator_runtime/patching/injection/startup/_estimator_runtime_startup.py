"""Import hook that installs the runtime when this process first imports TensorFlow.

Every Python process may import this module at start-up, so it imports almost nothing
itself. It is self-contained: `estimator-runtime enable` puts a copy of it into
site-packages. The copy has to be harmless after the package is uninstalled, and on any
version of Python.
"""

import _thread
import os
import sys

_WATCHED = ("tensorflow", "tensorflow_estimator")
# What TensorFlow 1 mode changes, so it has to be on before the program imports them.
_CHANGED_BY_TF1 = (*_WATCHED, "imp", "numpy", "tf_slim")
_TF1 = "ESTIMATOR_RUNTIME_TF1"
_lock = _thread.RLock()


class _Watcher(object):  # noqa: UP004 - see above
    # It stays where it is: other threads that import something go along sys.meta_path,
    # and would miss a finder if it got shorter.
    is_done = False

    def find_spec(self, name, path=None, target=None):
        if self.is_done or name not in _WATCHED:
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "create_module"):  # a folder has no loader
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None

    def install(self):
        with _lock:
            if not self.is_done:
                _install()
                self.is_done = True


class _Loader(object):  # noqa: UP004 - see above
    """A loader that installs the runtime when it creates a module.

    The finder does not. Python calls finders while it holds a lock that each import of
    any thread needs, so a finder that imports a module may wait for ever if another
    thread is importing the same module.
    """

    def __init__(self, loader, watcher):
        self._loader = loader
        self._watcher = watcher

    def __getattr__(self, name):
        if name == "_loader":  # of a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec):
        from importlib.util import find_spec

        self._watcher.install()
        # Anew: install() has put finders before the watcher.
        found = find_spec(spec.name)
        if found is not None and found.loader is not None:
            self._loader = found.loader
        if spec.loader is self:
            spec.loader = self._loader
        return self._loader.create_module(spec)

    def exec_module(self, module):
        if module.__spec__.loader is self:
            module.__spec__.loader = module.__loader__ = self._loader
        return self._loader.exec_module(module)


def _install():
    try:
        from estimator_runtime import install

        install()
    except Exception as error:  # noqa: BLE001 - the program may not need Estimators
        if getattr(error, "name", None) != "estimator_runtime":  # uninstalled
            sys.stderr.write("estimator-runtime: not activated: %s\n" % (error,))  # noqa: UP031


def watch(tf1=False):
    """Watch for the import of TensorFlow, unless ESTIMATOR_RUNTIME_AUTO is 0.

    Args:
        tf1: Whether TensorFlow 1 mode is on, unless ESTIMATOR_RUNTIME_TF1 says.
    """
    if os.environ.get("ESTIMATOR_RUNTIME_AUTO") != "0":
        if tf1:
            os.environ.setdefault(_TF1, "1")
        watch_as_parent_does()


def watch_as_parent_does():
    """Watch for the import of TensorFlow in a child of a process with the runtime."""
    if any(type(each).__name__ == "_Watcher" for each in sys.meta_path):
        return
    watcher = _Watcher()
    sys.meta_path.insert(0, watcher)
    if os.environ.get(_TF1) == "1":
        _watch_statements(watcher)


def _watch_statements(watcher):
    """Install the runtime before the statement that imports TensorFlow first.

    A finder would be too late: what such a statement gives in TensorFlow 1 mode depends
    on who executes it.
    """
    import builtins
    import importlib

    original_import, original_module = builtins.__import__, importlib.import_module
    state = {"is_done": False}

    def is_first(name):
        if state["is_done"] or name.partition(".")[0] not in _CHANGED_BY_TF1:
            return False
        state["is_done"] = True  # what follows imports too
        watcher.install()
        return True

    def import_(name, globals=None, locals=None, fromlist=(), level=0):
        if level == 0 and is_first(name) and builtins.__import__ is not import_:
            if globals is None:
                globals = sys._getframe(1).f_globals
            return builtins.__import__(name, globals, locals, fromlist, level)
        return original_import(name, globals, locals, fromlist, level)

    def import_module(name, package=None):
        if is_first(name) and importlib.import_module is not import_module:
            # Not our own call of the new one, which goes by the file of its caller. The
            # last module of the name is returned if something is imported from it.
            globals = sys._getframe(1).f_globals
            return builtins.__import__(name, globals, None, ("__name__",), 0)
        return original_module(name, package)

    builtins.__import__ = import_
    importlib.import_module = import_module
