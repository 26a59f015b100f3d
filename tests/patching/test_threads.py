"""Threads that import TensorFlow and call install() at once, each pair in a process.

A loader stops one thread in the middle of an import until another has come to a point.
"""

import pytest

_PAUSE = """
import importlib.abc, importlib.util, sys, threading
class At(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    '''Calls a function when a module is about to be loaded, once.

    Not when it is looked for: then no other thread could import anything.
    '''
    def __init__(self, name, function):
        self.name, self.function = name, function
    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        self.loader, spec.loader = spec.loader, self
        return spec
    def create_module(self, spec):
        self.function()
        spec.loader = self.loader
        return self.loader.create_module(spec)
    def exec_module(self, module):
        self.loader.exec_module(module)
def start(function):
    def run():
        try:
            function()
        except BaseException as error:
            print(type(error).__name__, error)
    thread = threading.Thread(target=run)
    thread.start()
    return thread
"""


@pytest.fixture
def output_of(run_python):
    """Return a function that runs a program; it returns what that prints."""

    def output_of(program):
        done = run_python("-W", "ignore", "-c", _PAUSE + program)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return output_of


def test_install_waits_for_the_import_of_another_thread(output_of):
    program = """
import estimator_runtime as er
begun, called = threading.Event(), threading.Event()
def pause():
    begun.set()
    called.wait(60)
sys.meta_path.insert(0, At("tensorflow.python.tools", pause))
thread = start(lambda: importlib.import_module("tensorflow"))
begun.wait(60)
called.set()  # the rest of the import takes longer than the next line's first look
er.install()
thread.join()
import tensorflow as tf
print(tf.estimator.RunConfig is er.RunConfig)
"""
    assert output_of(program) == "True"


def test_install_in_the_middle_of_an_import_is_one_clear_error(output_of):
    program = """
import estimator_runtime as er
def call():
    try:
        er.install()
    except er.EstimatorRuntimeError as error:
        print(error)
sys.meta_path.insert(0, At("tensorflow.python.tools", call))
import tensorflow as tf
er.install()
assert tf.estimator.RunConfig is er.RunConfig
"""
    assert output_of(program) == (
        "estimator_runtime.install() was called in the middle of `import tensorflow`, by "
        "something that it imports; call it before or after"
    )


def test_threads_that_import_estimators_in_different_ways_do_not_deadlock(output_of):
    program = """
import estimator_runtime as er
er.install()
import tensorflow as tf
in_ours, in_frozen = threading.Event(), threading.Event()
def pause_in_ours():
    in_ours.set()
    in_frozen.wait(60)
def pause_in_frozen():
    in_frozen.set()
    threading.Event().wait(1)  # for the other thread to come to this import too
sys.meta_path[:0] = [
    At("estimator_runtime.session.run_config_values", pause_in_ours),
    At("tensorflow_estimator", pause_in_frozen),
]
ours = start(lambda: er.RunConfig)
in_ours.wait(60)
frozen = start(lambda: tf.estimator.Estimator)
ours.join()
frozen.join()
print(tf.estimator.RunConfig is er.RunConfig)
"""
    assert output_of(program) == "True"
