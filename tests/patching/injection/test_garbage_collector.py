"""The garbage collector ignores TensorFlow's objects, and not those of the program."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.patching.injection import garbage_collector

_PROGRAM = """
import gc

class Own:
    \"\"\"An object in a reference cycle, with text that is not flushed.\"\"\"

    def __init__(self, name):
        self.own, self.file = self, open(name, "w")
        self.file.write(name)

early = Own("early")
import tensorflow as tf
late = Own("late")
Own.file_of_class = open("of_class", "w")
Own.file_of_class.write("of_class")
print(gc.isenabled(), gc.get_threshold()[0] < 10_000, gc.get_freeze_count() > 100_000)
"""


@pytest.mark.parametrize(("value", "is_frozen"), [("1", True), ("0", False)])
def test_tensorflow_is_frozen_and_files_in_cycles_are_flushed(
    run_script, tmp_path, value, is_frozen
):
    (tmp_path / "program.py").write_text(_PROGRAM)
    variable = {garbage_collector.VARIABLE: value}
    done = run_script("program.py", cwd=tmp_path, **variable)
    assert (done.returncode, done.stdout) == (0, f"True True {is_frozen}\n"), (
        done.stderr
    )
    for name in ("early", "late", "of_class"):
        assert (tmp_path / name).read_text() == name


def test_thresholds_that_the_program_sets_before_the_import_stay(run_script, tmp_path):
    (tmp_path / "program.py").write_text(
        "import gc; gc.set_threshold(1234, 5, 6)\n"
        "import tensorflow; print(gc.get_threshold())\n"
    )
    done = run_script("program.py", cwd=tmp_path)
    assert done.stdout == "(1234, 5, 6)\n", done.stderr


def test_the_variable_is_0_or_1():
    assert garbage_collector.is_wanted({})
    assert not garbage_collector.is_wanted({garbage_collector.VARIABLE: "0"})
    with pytest.raises(ConfigError, match="ESTIMATOR_RUNTIME_FREEZE_IMPORT is 'no'"):
        garbage_collector.is_wanted({garbage_collector.VARIABLE: "no"})
