"""Automatic activation, in a virtual environment of its own and real interpreters."""

import os
import pathlib
import subprocess
import sysconfig
import venv

import pytest

import estimator_runtime


class Environment:
    """A virtual environment that sees the packages of this one."""

    def __init__(self, folder):
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        [self.packages] = folder.glob("lib/python*/site-packages")
        root = pathlib.Path(estimator_runtime.__file__).parents[1]
        paths = [str(root), sysconfig.get_path("purelib")]
        (self.packages / "packages.pth").write_text("\n".join(paths))

    def run(self, *arguments, **variables):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "ESTIMATOR_RUNTIME", "TF_"))
        }
        return subprocess.run(
            [self.python, "-W", "ignore", *arguments],
            cwd=self.folder,
            env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def command(self, name, **variables):
        done = self.run("-m", "estimator_runtime", name, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "env")


def test_plain_python_has_estimators_where_it_is_enabled_until_it_is_disabled(
    environment,
):
    where = environment.packages
    off, on = (f"automatic activation is {each} in {where}" for each in ("off", "on"))
    off += ": only 'estimator-runtime run' and programs that call install() use this runtime"
    assert environment.command("status").splitlines()[0] == off
    assert environment.command("enable").strip() == on
    assert environment.command("status").splitlines()[0] == on
    script = "import tensorflow as tf, estimator_runtime as er; print(tf.estimator.RunConfig is er.RunConfig)"
    assert environment.run("-c", script).stdout == "True\n"
    assert environment.command("disable").strip() == off
    assert sorted(path.name for path in where.rglob("*.*")) == ["packages.pth"]
    assert environment.command("disable").strip() == off


def test_plain_python_is_in_tensorflow_1_mode_where_that_is_enabled(environment):
    done = environment.run("-m", "estimator_runtime", "enable", "--tf1")
    where = environment.packages
    on = f"automatic activation is on in {where}, with TensorFlow 1 mode"
    assert done.stdout.strip() == on, done.stderr
    script = (
        "import importlib; first = importlib.import_module('tensorflow')\n"
        "import tensorflow as tf, numpy as np\n"
        "print(first is tf, hasattr(tf, 'placeholder'), hasattr(np, 'float'))"
    )
    assert environment.run("-c", script).stdout == "True True True\n"
    off = environment.run("-c", script, ESTIMATOR_RUNTIME_TF1="0")
    assert off.stdout == "True False False\n", off.stderr
    plain = f"automatic activation is on in {where}"
    assert environment.command("enable").strip() == plain


def test_a_program_without_tensorflow_imports_one_small_module_more(environment):
    program = "import sys; print(*sorted(sys.modules), sep='\\n')"
    before = environment.run("-c", program).stdout.splitlines()
    environment.command("enable")
    after = environment.run("-c", program).stdout.splitlines()
    assert sorted(set(after) - set(before)) == ["_estimator_runtime_startup"]


def test_one_run_is_switched_off_by_a_variable(environment):
    environment.command("enable")
    off = {"ESTIMATOR_RUNTIME_AUTO": "0"}
    program = "import sys; print([each for each in sys.meta_path if '_Watcher' in repr(each)])"
    assert environment.run("-c", program, **off).stdout == "[]\n"
    assert "_Watcher" in environment.run("-c", program).stdout
    assert environment.command("status", **off).splitlines()[0].endswith(
        ", but ESTIMATOR_RUNTIME_AUTO is 0 in this environment, which switches it off"
    )  # fmt: skip


def test_what_is_left_behind_by_an_uninstalled_package_is_silent(environment):
    environment.command("enable")
    # No package, and a tensorflow that is a file of one line.
    (environment.packages / "packages.pth").unlink()
    (environment.packages / "tensorflow.py").write_text("print('plain')")
    done = environment.run("-c", "import tensorflow")
    assert (done.stdout, done.stderr, done.returncode) == ("plain\n", "", 0)


def test_packages_that_cannot_run_estimators_cost_a_line_and_not_the_program(
    environment,
):
    environment.command("enable")
    (environment.packages / "tensorflow.py").write_text(
        "__version__ = '2.9'; print('plain')"
    )
    info = environment.packages / "tensorflow-2.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: tensorflow\nVersion: 2.9.0\n")
    done = environment.run("-c", "import tensorflow")
    assert (done.stdout, done.returncode) == ("plain\n", 0)
    assert done.stderr == (
        "estimator-runtime: not activated: TensorFlow 2.9.0 is too old; install 2.15 "
        "to 2.21, such as: pip install tensorflow==2.15.1\n"
    )
