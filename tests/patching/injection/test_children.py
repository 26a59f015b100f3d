"""Processes that a program starts have the runtime as it has, however it starts them."""

import functools
import os
import venv

import pytest

CHILD = """
import tensorflow as tf
import estimator_runtime as er
print("child", tf.estimator.RunConfig is er.RunConfig)
"""
PARENTS = {
    "subprocess": """
import subprocess, sys
subprocess.run([sys.executable, "-W", "ignore", "child.py"], check=True)
""",
    "fork": """
import os
pid = os.fork()
if not pid:
    import child
    os._exit(0)
os.waitpid(pid, 0)
""",
    "spawn": """
import multiprocessing
def work():
    import child
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
""",
    "a child of a child": """
import subprocess, sys
line = "import subprocess, sys; subprocess.run([sys.executable, '-W', 'ignore', 'child.py'])"
subprocess.run([sys.executable, "-c", line], check=True)
""",
}


@pytest.fixture
def run(run_python, tmp_path):
    """Return a function that runs Python, whose children have what it gives them."""
    # What a parent prints comes before what its child prints.
    variables = {"ESTIMATOR_RUNTIME_AUTO": None, "PYTHONUNBUFFERED": "1"}
    return functools.partial(run_python, "-W", "ignore", cwd=tmp_path, **variables)


@pytest.mark.parametrize("way", PARENTS)
def test_the_children_of_a_script_under_run_have_estimators(run, tmp_path, way):
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(PARENTS[way])
    done = run("-m", "estimator_runtime", "run", "parent.py")
    assert done.stdout.strip() == "child True", done.stderr


def test_the_children_of_a_script_that_calls_install_have_estimators(run, tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(
        "import estimator_runtime; estimator_runtime.install()" + PARENTS["subprocess"]
    )
    done = run("parent.py", ESTIMATOR_RUNTIME_AUTO="0")
    assert done.stdout.strip() == "child True", done.stderr


def test_a_child_sees_its_own_folders_and_the_environments_own_sitecustomize(
    run, tmp_path
):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('own')")
    (tmp_path / "child.py").write_text("import sys; print(sys.path)")
    (tmp_path / "parent.py").write_text(PARENTS["subprocess"])
    path = os.pathsep.join(
        filter(None, [str(tmp_path / "own"), os.environ.get("PYTHONPATH")])
    )
    plain = run("parent.py", PYTHONPATH=path)
    ours = run("-m", "estimator_runtime", "run", "parent.py", PYTHONPATH=path)
    assert plain.stdout.startswith("own\nown\n[")
    assert ours.stdout == plain.stdout


def test_another_python_is_left_alone(run, tmp_path):
    done = run(
        "-c",
        "import os, estimator_runtime as er; er.install();"
        "os.environ['ESTIMATOR_RUNTIME_CHILDREN'] = '/another/python';"
        "import subprocess, sys;"
        "subprocess.run([sys.executable, '-c', 'import sys; print(sys.meta_path)'])",
    )
    assert "_frozen_importlib" in done.stdout and "_Watcher" not in done.stdout


LEGACY = "import os; print(os.environ.get('TF_USE_LEGACY_KERAS'))"


@pytest.mark.parametrize(("chosen", "expected"), [(None, "None"), ("1", "1")])
def test_the_choice_of_legacy_keras_is_not_for_another_python(
    run, chosen, expected, tmp_path
):
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    other = tmp_path / "other" / "bin" / "python"
    done = run(
        "-c",
        "import estimator_runtime as er, subprocess; er.install();"
        f"subprocess.run([{str(other)!r}, '-c', {LEGACY!r}], check=True)",
        TF_USE_LEGACY_KERAS=chosen,
    )
    assert done.stdout.strip() == expected, done.stderr
