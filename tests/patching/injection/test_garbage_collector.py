"""The import of TensorFlow is not collected; what the program makes is, to its end."""

import copy
import importlib.machinery
import os
import pathlib
import subprocess
import sys

import pytest

import estimator_runtime
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching.injection import garbage_collector

_ROOT = pathlib.Path(estimator_runtime.__file__).parents[1]
_TENSORFLOW = """
import gc
was_collecting = gc.isenabled()
made = [[]]
made.append(made)
"""
_SPARED = """
import gc, sys
from estimator_runtime.patching.injection import garbage_collector

garbage_collector.spare_import()
early = [[]]
early.append(early)
if sys.argv[1] == "off":
    gc.disable()
try:
    import tensorflow
except RuntimeError:
    print(gc.isenabled(), gc.get_freeze_count())
else:
    known = {id(each) for each in gc.get_objects()}
    print(gc.isenabled(), tensorflow.was_collecting)
    print(id(early) in known, id(tensorflow.made) in known)
    print(tensorflow.__loader__ is tensorflow.__spec__.loader)
    print(type(tensorflow.__loader__).__name__)
"""


def run(folder, *command, **variables):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(("state", "is_enabled"), [("on", "True"), ("off", "False")])
def test_the_import_is_frozen_and_what_was_there_before_is_not(
    tmp_path, state, is_enabled
):
    (tmp_path / "tensorflow.py").write_text(_TENSORFLOW)
    (tmp_path / "program.py").write_text(_SPARED)
    assert run(tmp_path, "program.py", state) == (
        0,
        [f"{is_enabled} False", "True False", "True", "SourceFileLoader"],
        "",
    )


@pytest.mark.parametrize(("state", "is_enabled"), [("on", "True"), ("off", "False")])
def test_an_import_that_fails_freezes_nothing(tmp_path, state, is_enabled):
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError")
    (tmp_path / "program.py").write_text(_SPARED)
    assert run(tmp_path, "program.py", state) == (0, [f"{is_enabled} 0"], "")


_THREADED = """
import builtins, threading, weakref
from estimator_runtime.patching.injection import garbage_collector

class Own:
    pass

def numbers():
    yield 1
    waiting.set()
    builtins.imported.wait()
    yield 2

def work():
    own = Own()
    builtins.reference = weakref.ref(own)
    made.append(tuple(numbers()))  # of fewer items than Python makes room for

made, waiting, builtins.imported = [], threading.Event(), threading.Event()
builtins.worker = threading.Thread(target=work)
worker.start()
waiting.wait()
garbage_collector.spare_import()
import tensorflow
print(made, tensorflow.ended)
"""


def test_threads_that_run_during_the_import_see_no_difference(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "imported.set()\nworker.join()\nended = reference() is None\n"
    )
    (tmp_path / "program.py").write_text(_THREADED)
    assert run(tmp_path, "program.py") == (0, ["[(1, 2)] True"], "")


_PROGRAM = """
import gc, weakref

WORD = "x"  # a global that its module still has


class Own:
    \"\"\"An object in a reference cycle, with text that is not flushed.\"\"\"

    def __init__(self, name):
        self.own, self.name = self, name
        self.file = open(name, "w")
        self.file.write(name)

    def __del__(self):
        print("the end of", self.name, WORD)


early = Own("early")
early.reference = weakref.ref(early, lambda _: None)
import tensorflow as tf
early.later, late = Own("later"), Own("late")
Own.file_of_class = open("of_class", "w")
Own.file_of_class.write("of_class")
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


@pytest.mark.parametrize(("value", "is_frozen"), [("1", "True"), ("0", "False")])
def test_a_program_ends_as_ever_with_files_and_finalizers_in_cycles(
    tmp_path, value, is_frozen
):
    (tmp_path / "program.py").write_text(_PROGRAM)
    command = "-m", "estimator_runtime", "run", "program.py"
    variables = {garbage_collector.VARIABLE: value, "TF_CPP_MIN_LOG_LEVEL": "3"}
    status, lines, errors = run(tmp_path, *command, **variables)
    assert (status, lines[0]) == (0, f"True {is_frozen}"), errors
    assert sorted(lines[1:]) == [
        "the end of early x",
        "the end of late x",
        "the end of later x",
    ]
    for name in ("early", "later", "late", "of_class"):
        assert (tmp_path / name).read_text() == name


def test_the_variable_is_a_switch_that_is_on():
    assert garbage_collector.is_wanted({})
    assert not garbage_collector.is_wanted({garbage_collector.VARIABLE: "0"})
    with pytest.raises(ConfigError, match="ESTIMATOR_RUNTIME_FREEZE_IMPORT is 'no'"):
        garbage_collector.is_wanted({garbage_collector.VARIABLE: "no"})


def test_the_loader_of_a_spec_that_a_program_asks_for_can_be_copied():
    original = importlib.machinery.SourceFileLoader("module", "module.py")
    loader = copy.copy(garbage_collector._SparingLoader(original))
    assert loader.get_filename() == "module.py"
