"""Who imports decides which TensorFlow it gets: the program, or an installed library."""

import json
import sys
import types

import pytest

import estimator_runtime
from estimator_runtime.tf1 import importer


def module(name, file=None):
    """Return the globals of a module."""
    made = types.ModuleType(name)
    if file is not None:
        made.__file__ = str(file)
    return vars(made)


@pytest.mark.parametrize(
    "name, file",
    [
        ("__main__", "/home/me/bert/run_classifier.py"),
        ("modeling", "/home/me/bert/modeling.py"),
        ("bert.modeling", "/opt/bert/modeling.py"),
        ("__main__", None),  # python -c, a notebook
    ],
)
def test_the_programs_own_files_are_the_program(name, file):
    assert importer.is_program(module(name, file), None)


@pytest.mark.parametrize(
    "name, file",
    [
        ("hub", "/usr/lib/python3/dist-packages/hub.py"),
        ("tf_keras.src", "/home/me/env/lib/python3.11/site-packages/tf_keras/src/a.py"),
        ("__main__", "/home/me/env/lib/python3.11/site-packages/tensorboard/main.py"),
        ("json", json.__file__),
        ("estimator_runtime", estimator_runtime.__file__),
    ],
)
def test_what_is_installed_is_not_the_program(name, file):
    assert not importer.is_program(module(name, file), None)


def test_a_builtin_module_is_not_the_program():
    assert not importer.is_program({"__name__": "_io", "__spec__": object()}, None)


def test_a_folder_that_pip_installed_into_is_not_the_program(tmp_path, monkeypatch):
    (tmp_path / "hub-1.0.dist-info").mkdir()
    file = tmp_path / "hub" / "module.py"
    assert importer.is_program(module("hub.module", file), None)
    importer._is_installed.cache_clear()
    monkeypatch.syspath_prepend(tmp_path)
    assert not importer.is_program(module("hub.module", file), None)


def test_code_without_a_module_is_of_the_code_that_runs_it():
    text = "is_program({}, sys._getframe(0))"
    own = {"is_program": importer.is_program, "sys": sys, "text": text}
    installed = {**own, **module("hub", "/usr/lib/python3/dist-packages/hub2.py")}
    program = {**own, **module("train", "/home/me/train.py")}
    nested = "result = eval(text, {'is_program': is_program, 'sys': sys})"
    exec(nested, installed)
    exec(nested, program)
    assert (installed["result"], program["result"]) == (False, True)


PROGRAM = """
import importlib, json, sys
import installed, mine
import tensorflow as tf

by_text = {}
exec("import tensorflow as tf", by_text)
print(json.dumps({
    "the script": hasattr(tf, "placeholder"),
    "a module of its own": hasattr(mine.tf, "placeholder"),
    "a text": by_text["tf"] is tf,
    "importlib": importlib.import_module("tensorflow") is tf,
    "a library": hasattr(installed.tf, "placeholder"),
    "a library's import of contrib": installed.has_contrib,
    "a library by importlib": hasattr(installed.again, "placeholder"),
    "sys.modules": hasattr(sys.modules["tensorflow"], "placeholder"),
    "the real TensorFlow has contrib": hasattr(sys.modules["tensorflow"], "contrib"),
}))
"""
INSTALLED = """
import importlib
import tensorflow as tf
try:
    import tensorflow.contrib
    has_contrib = True
except ImportError:
    has_contrib = False
again = importlib.import_module("tensorflow")
"""


def test_a_library_gets_the_real_tensorflow_and_the_program_the_old_one(
    tmp_path, run_tf1, python_path
):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "installed.py").write_text(INSTALLED)
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "mine.py").write_text("import tensorflow as tf\n")
    (tmp_path / "program" / "train.py").write_text(PROGRAM)
    done = run_tf1(
        "program/train.py", PYTHONPATH=python_path(tmp_path / "site-packages")
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "the script": True,
        "a module of its own": True,
        "a text": True,
        "importlib": True,
        "a library": False,
        "a library's import of contrib": False,
        "a library by importlib": False,
        "sys.modules": False,
        "the real TensorFlow has contrib": False,
    }


def test_an_installed_package_that_run_starts_is_the_program_and_no_other_is(
    tmp_path, run_tf1, python_path
):
    package = tmp_path / "site-packages" / "bert"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "modeling.py").write_text("import tensorflow as tf\n")
    (package / "train.py").write_text(
        "import bert2, tensorflow as tf\nfrom bert import modeling\n"
        "print(tf.Session is modeling.tf.Session, hasattr(bert2.tf, 'Session'))\n"
    )
    (package.parent / "bert2.py").write_text("import tensorflow as tf\n")
    done = run_tf1(
        "-m", "bert.train", PYTHONPATH=python_path(tmp_path / "site-packages")
    )
    assert done.stdout == "True False\n", done.stderr
