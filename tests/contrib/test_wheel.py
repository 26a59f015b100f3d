"""What `tf1 install` accepts, and what it says when it cannot install."""

import os
import pathlib
import socket
import zipfile

import pytest
from tf1_contrib import patience

from estimator_runtime.errors import EstimatorRuntimeError, UsageError
from estimator_runtime.tf1.contrib import wheel

_INSTALL = ("-m", "estimator_runtime", "tf1", "install")
_FAILED = (
    "estimator-runtime: error: estimator-runtime tf1 install: pip download failed: "
)


def test_a_folder_that_does_not_hold_it_is_an_error(tmp_path):
    environ = {wheel.FOLDER_VARIABLE: str(tmp_path)}
    with pytest.raises(EstimatorRuntimeError) as raised:
        wheel.find(environ)
    assert str(raised.value) == (
        f"ESTIMATOR_RUNTIME_TF1_CONTRIB is '{tmp_path}', which does not hold "
        "tf.contrib; run: estimator-runtime tf1 install, or unset it"
    )


def test_another_wheel_is_refused_by_its_checksum(tmp_path):
    file = tmp_path / "tensorflow-1.15.5-cp37-cp37m-manylinux2010_x86_64.whl"
    file.write_bytes(b"another")
    with pytest.raises(UsageError) as raised:
        wheel.install([str(file)], None, {})
    assert str(raised.value) == (
        f"--wheel {file}: its SHA-256 is ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff"
        "73360989487f08e5, which is that of neither tensorflow==1.15.5 nor "
        "tensorflow-estimator==1.15.2 (cp37, manylinux2010_x86_64)"
    )


def test_without_a_package_index_the_error_says_what_to_do(run_python, tmp_path):
    done = run_python(*_INSTALL, cwd=tmp_path, PIP_NO_INDEX="1")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(_FAILED)
    assert line.endswith(
        ". Without a package index or pip, make "
        "estimator_runtime_tf1_contrib-1.15.5-py3-none-any.whl on another machine with "
        "--output, and install that"
    )


def test_an_index_that_does_not_answer_is_given_up(run_python, tmp_path):
    """As on a network that drops packets: the connection gets no reply."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        done = run_python(
            *_INSTALL,
            cwd=tmp_path,
            PIP_INDEX_URL=index,
            PIP_EXTRA_INDEX_URL="",
            PIP_CONFIG_FILE=os.devnull,
            PIP_DEFAULT_TIMEOUT="1",
            PIP_RETRIES="0",
        )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(_FAILED)


@pytest.fixture(scope="module")
def wheels(original_contrib, fetched_wheel, tmp_path_factory):
    """Return the file that `--output` writes, and the variable of its files."""
    folder = tmp_path_factory.mktemp("wheels")
    with patience():
        wheel.install([fetched_wheel], str(folder), {})
    return folder / wheel.WHEEL, original_contrib[wheel.FOLDER_VARIABLE]


def test_the_small_wheel_is_installed_by_pip_and_has_the_same_files(
    wheels, run_python, tmp_path
):
    made, folder = wheels
    assert made.stat().st_size < 2_500_000
    command = "-m pip install --no-index --no-deps --no-compile --target".split()
    assert run_python(*command, tmp_path, made).returncode == 0
    package = tmp_path / wheel.PACKAGE
    assert _files(package) == _files(pathlib.Path(folder))
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert [name for name in names if name.endswith(".so")] == []


def _files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_a_folder_with_other_files_is_not_overwritten(wheels, tmp_path):
    (tmp_path / "mine").touch()
    (tmp_path / "LICENSE").write_text("of a project")
    with pytest.raises(EstimatorRuntimeError, match="a folder that holds other files"):
        wheel.install([], None, {wheel.FOLDER_VARIABLE: str(tmp_path)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LICENSE", "mine"]
