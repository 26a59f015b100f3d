"""What the installed packages must be, asked of folders that claim to be packages."""

import subprocess
import sys
from pathlib import Path

import pytest

import estimator_runtime
from estimator_runtime.errors import CompatibilityError
from estimator_runtime.tf_internals import versions

_ASK = "from estimator_runtime.tf_internals import versions; print(versions.check_installed())"


def _check(folder, packages):
    """Run check_installed() in a Python that sees only `packages`, of name: version."""
    for name, version in packages.items():
        module = folder / {"tensorflow-cpu": "tensorflow"}.get(name, name).replace(
            "-", "_"
        )
        module.mkdir()
        (module / "__init__.py").touch()
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        (info / "top_level.txt").write_text(module.name)
    # Alone, without the site-packages that it may be installed in.
    ours = Path(estimator_runtime.__file__).parent
    (folder / "estimator_runtime").symlink_to(ours, target_is_directory=True)
    return subprocess.run(
        [sys.executable, "-S", "-c", _ASK],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=30,
    )


_GOOD = {"tensorflow": "2.21.0", "tensorflow-estimator": "2.15.0", "tf-keras": "2.21.0"}


@pytest.mark.parametrize(
    "packages, version",
    [
        (_GOOD, "(2, 21)"),
        ({"tensorflow": "2.15.1", "tensorflow-estimator": "2.15.0"}, "(2, 15)"),
        ({**_GOOD, "tensorflow": "2.16.0rc1"}, "(2, 16)"),
        (
            {
                "tensorflow-cpu": "2.18.1",
                "tensorflow-estimator": "2.15.0",
                "tf-keras": "2.18.0",
            },
            "(2, 18)",
        ),
    ],
)
def test_a_tested_set_of_packages_passes(tmp_path, packages, version):
    result = _check(tmp_path, packages)
    assert (result.stdout.strip(), result.stderr) == (version, "")


@pytest.mark.parametrize(
    "packages, message",
    [
        ({}, "TensorFlow is not installed in this Python"),
        (
            {**_GOOD, "tensorflow": "2.14.1"},
            "TensorFlow 2.14.1 is too old; install 2.15 to 2.21, such as: "
            "pip install tensorflow==2.15.1",
        ),
        (
            {"tensorflow": "2.15.1"},
            "tensorflow-estimator is not installed; "
            "pip install tensorflow-estimator==2.15.0",
        ),
        (
            {**_GOOD, "tensorflow-estimator": "2.14.0"},
            "tensorflow-estimator is 2.14.0; pip install tensorflow-estimator==2.15.0",
        ),
        (
            {"tensorflow": "2.21.0", "tensorflow-estimator": "2.15.0"},
            "tf-keras is not installed, and Estimators on TensorFlow 2.21.0 need it; "
            "pip install 'tf-keras==2.21.*'",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_command_that_helps(
    tmp_path, packages, message
):
    result = _check(tmp_path, packages)
    assert result.returncode == 1
    last_line = result.stderr.strip().splitlines()[-1]
    assert last_line.startswith("estimator_runtime.errors.CompatibilityError: ")
    assert message in last_line


def test_a_newer_tensorflow_is_tried_with_a_warning_that_names_the_tested_range(
    tmp_path,
):
    result = _check(tmp_path, {**_GOOD, "tensorflow": "2.99.0"})
    assert result.stdout.strip() == "(2, 99)"
    assert result.stderr.strip() == (
        "TensorFlow 2.99.0 is newer than what estimator_runtime was tested with "
        "(2.15 to 2.21); trying anyway."
    )


def test_a_version_that_is_no_number_is_refused():
    assert versions.parse("2.16.0-rc1") == (2, 16)
    with pytest.raises(CompatibilityError, match="calls its version 'nightly'"):
        versions.parse("nightly")
