"""Installs the original `tf.contrib`: a small wheel, made of two wheels of 2021.

Of TensorFlow 1.15.5 (110 MB) it takes `tf.contrib` and five modules that are gone from
TensorFlow since, of tensorflow-estimator 1.15.2 its `contrib`: 2.2 MB. The files are
not changed.
"""

import base64
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence

from estimator_runtime.errors import EstimatorRuntimeError, UsageError

COMMAND = "estimator-runtime tf1 install"
# A folder to install into, and to import from, in place of the environment.
FOLDER_VARIABLE = "ESTIMATOR_RUNTIME_TF1_CONTRIB"
PACKAGE = "estimator_runtime_tf1_contrib"
VERSION = "1.15.5"
WHEEL = f"{PACKAGE}-{VERSION}-py3-none-any.whl"
# The folders of the package for what is not in tensorflow/contrib.
_CORE, _ESTIMATOR = "_core", "_estimator"
EXAMPLES = "_examples"

_SOURCES = {
    f"tensorflow=={VERSION}": (
        "29831dda98d668067de75403b2fca0d06a2f026ef6f217fa2ca873c20b4ee4d3"
    ),
    "tensorflow-estimator==1.15.2": (
        "9aacfb60d1ae87fad506c54c338b4123416ca693d1fdbaa2107c2a64c07da05f"
    ),
}
# TensorFlow 1.15.5 has no wheel for a Python that runs TensorFlow 2.15.
_DOWNLOAD = (
    "--no-deps --only-binary=:all: --python-version 3.7 --implementation cp "
    "--abi cp37m --platform manylinux2010_x86_64"
).split()
_DOWNLOAD_SECS = 900
_CORE_MODULES = (
    "data/experimental/ops/threadpool",
    "distribute/all_reduce",
    "eager/execution_callbacks",
    "ops/distributions/transformed_distribution",
    "profiler/profile_context",
)
# Folders of the wheels, and the folders of the package that their files go to.
_TAKEN = {
    "tensorflow_core/contrib/": "",
    # The reader of MNIST, which programs of that time import.
    "tensorflow_core/examples/tutorials/": f"{EXAMPLES}/tutorials",
    **{f"tensorflow_core/python/{name}.py": _CORE for name in _CORE_MODULES},
    "tensorflow_estimator/contrib/": _ESTIMATOR,
}
LICENSE = """\
Copyright 2015-2020 The TensorFlow Authors. All Rights Reserved.

These files are unchanged parts of tensorflow 1.15.5 and tensorflow-estimator 1.15.2,
licensed under the Apache License, Version 2.0. You may obtain a copy of the License at
https://www.apache.org/licenses/LICENSE-2.0
"""
_METADATA = f"""\
Metadata-Version: 2.1
Name: {PACKAGE.replace("_", "-")}
Version: {VERSION}
Summary: tf.contrib of TensorFlow {VERSION}, for estimator-runtime
License: Apache-2.0
"""
_TAG = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def find(environ: Mapping[str, str] = os.environ) -> pathlib.Path | None:
    """Return the folder of the installed `tf.contrib`, or None if there is none.

    Raises:
        EstimatorRuntimeError: If the variable names a folder that does not hold it.
    """
    if named := environ.get(FOLDER_VARIABLE):
        folder = pathlib.Path(named)
        if not _holds_contrib(folder):
            raise EstimatorRuntimeError(
                f"{FOLDER_VARIABLE} is {named!r}, which does not hold tf.contrib; run: "
                f"{COMMAND}, or unset it"
            )
        return folder
    spec = importlib.util.find_spec(PACKAGE)
    locations = spec.submodule_search_locations if spec else None
    return pathlib.Path(next(iter(locations))) if locations else None


def install(
    wheels: Sequence[str], output: str | None, environ: Mapping[str, str] = os.environ
) -> str:
    """Install `tf.contrib`, and return a line that says where.

    Args:
        wheels: Files of the two wheels above, which are not fetched then.
        output: A file or folder to write the small wheel to, which is not installed
            then; or None.
        environ: The environment, which may name a folder to install into.

    Raises:
        EstimatorRuntimeError: If a wheel cannot be fetched or read, or the small wheel
            cannot be written or installed.
        UsageError: If a file of `wheels` is neither of the two, or `output` has a name
            that pip refuses.
    """
    with tempfile.TemporaryDirectory(prefix="estimator-runtime-") as folder:
        made = pathlib.Path(folder, WHEEL)
        try:
            _build(made, _sources(wheels, folder))
            if output is not None:
                target = _target(output)
                shutil.copy(made, target)
                return f"wrote {target}; install it with: pip install {target}"
            if named := environ.get(FOLDER_VARIABLE):
                _unpack(made, pathlib.Path(named))
                return f"installed tf.contrib of TensorFlow {VERSION} in {named}"
        except OSError as error:
            raise EstimatorRuntimeError(f"{COMMAND}: {error}") from error
        _pip("install", "--no-deps", "--no-index", "--force-reinstall", str(made))
    return f"installed tf.contrib of TensorFlow {VERSION} in {sys.prefix}"


def _target(output: str) -> pathlib.Path:
    path = pathlib.Path(output)
    if path.is_dir():
        return path / WHEEL
    if path.name != WHEEL:
        raise UsageError(
            f"--output {output}: pip refuses a wheel of another name than {WHEEL}; "
            "give that, or a folder"
        )
    return path


def _sources(wheels: Sequence[str], folder: str) -> list[pathlib.Path]:
    """Return the paths of the two wheels, which are fetched if they are not given."""
    found = {}
    for name in wheels:
        digest = _sha256(pathlib.Path(name))
        if digest not in _SOURCES.values():
            raise UsageError(
                f"--wheel {name}: its SHA-256 is {digest}, which is that of neither "
                f"{' nor '.join(_SOURCES)} (cp37, manylinux2010_x86_64)"
            )
        found[digest] = pathlib.Path(name)
    missing = [name for name, digest in _SOURCES.items() if digest not in found]
    if missing:
        _pip("download", *_DOWNLOAD, "--dest", folder, *missing)
        for path in pathlib.Path(folder).glob("*.whl"):
            found[_sha256(path)] = path
    for name, digest in _SOURCES.items():
        if digest not in found:
            raise EstimatorRuntimeError(
                f"{COMMAND}: the package index has another wheel of {name} than the "
                f"one expected (SHA-256 {digest}); give that one with --wheel FILE"
            )
    return [found[digest] for digest in _SOURCES.values()]


def _sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_SECS
        )
        lines = (done.stderr or done.stdout).strip().splitlines()
        problem = lines[-1] if done.returncode and lines else done.returncode
    except subprocess.TimeoutExpired:
        problem = f"no end after {_DOWNLOAD_SECS} s"
    if problem:
        raise EstimatorRuntimeError(
            f"{COMMAND}: pip {arguments[0]} failed: {problem}. Without a package index "
            f"or pip, make {WHEEL} on another machine with --output, and install that"
        )


def _build(wheel: pathlib.Path, sources: Sequence[pathlib.Path]) -> None:
    """Write the small wheel; the same sources make the same bytes."""
    files = {f"{PACKAGE}/LICENSE": LICENSE.encode()}
    for path in sources:
        files.update(_taken(path))
    parents = {parent for name in files for parent in pathlib.PurePath(name).parents}
    for folder in parents - {pathlib.PurePath(".")}:
        files.setdefault(f"{folder}/__init__.py", b"")
    info = f"{PACKAGE}-{VERSION}.dist-info"
    files[f"{info}/METADATA"] = _METADATA.encode()
    files[f"{info}/WHEEL"] = _TAG.encode()
    record = [f"{name},{_hash(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _taken(wheel: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files that the package takes from a wheel, by their names in it."""
    try:
        archive = zipfile.ZipFile(wheel)
    except zipfile.BadZipFile as error:
        raise EstimatorRuntimeError(f"{COMMAND}: {wheel}: {error}") from error
    with archive:
        for name in archive.namelist():
            for prefix, folder in _TAKEN.items():
                if name.startswith(prefix) and name.endswith((".py", ".csv")):
                    rest = name.removeprefix(prefix) or pathlib.PurePath(name).name
                    parts = filter(None, [PACKAGE, folder, rest])
                    yield "/".join(parts), archive.read(name)


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.decode().rstrip('=')}"


def _unpack(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Put the files of the package into a folder, which may hold an older package."""
    if folder.exists() and any(folder.iterdir()) and not _holds_contrib(folder):
        raise EstimatorRuntimeError(
            f"{FOLDER_VARIABLE} is {str(folder)!r}, a folder that holds other files; "
            "name an empty one"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, so that it gets its name when it is whole.
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        if folder.exists():
            os.rename(folder, pathlib.Path(unpacked, "old"))
        os.rename(pathlib.Path(unpacked, PACKAGE), folder)


def _holds_contrib(folder: pathlib.Path) -> bool:
    """Return whether a folder has been made here: its license says so."""
    try:
        return (folder / "LICENSE").read_text() == LICENSE
    except (OSError, UnicodeDecodeError):
        return False
