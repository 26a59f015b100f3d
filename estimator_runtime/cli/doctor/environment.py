"""The environment of a training: packages, TF_CONFIG and the model directory."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from estimator_runtime.cli.checkpoints import size
from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.config.paths import is_local
from estimator_runtime.config.role import TaskType
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching.injection.activation import Activation
from estimator_runtime.patching.report import report
from estimator_runtime.session.run_config_values import resolve_model_dir
from estimator_runtime.tf_internals import versions


def check_versions(_subject: Subject) -> Iterator[Finding]:
    """Check the packages of this Python by their metadata, without importing them.

    Raises:
        CompatibilityError: If they cannot run Estimators.
    """
    found = report().versions
    shown = ", ".join(f"{name} {version}" for name, version in found.items())
    version = versions.check_installed()
    tf_keras = found["tf-keras"]
    if version >= (2, 16) and versions.parse(tf_keras) != version:
        wanted = ".".join(map(str, version))
        text = (
            f"tf-keras {tf_keras} is for another TensorFlow; pip install "
            f"'tf-keras=={wanted}.*' ({shown})"
        )
        yield Finding(PROBLEM, text)
    elif version > versions.NEWEST_TESTED:
        newest = ".".join(map(str, versions.NEWEST_TESTED))
        text = f"{shown}: newer than what was tested, up to TensorFlow {newest}"
        yield Finding(NOTE, text)
    else:
        yield Finding(OK, shown)


def check_config(subject: Subject) -> Iterator[Finding]:
    """Check TF_CONFIG as `run` does.

    Raises:
        ConfigError: If it is invalid.
    """
    config = subject.config
    if not config.cluster:
        why = "no cluster in it" if "TF_CONFIG" in subject.environ else "not set"
        yield Finding(OK, f"{why}: this process trains by itself")
        return
    sizes = ", ".join(f"{len(tasks)} {job}" for job, tasks in config.cluster.items())
    own = f"{config.task_type} {config.task_index}"
    text = f"this is {own}, of a cluster of {sizes}"
    if {TaskType.CHIEF, TaskType.MASTER} & set(config.cluster):
        yield Finding(OK, text)
    else:
        text += "; without a chief only multi-worker strategies train"
        yield Finding(NOTE, text)


def check_folder(subject: Subject) -> Iterator[Finding]:
    """Check whether the model directory can be written, and its free space.

    Raises:
        ConfigError: If the command line and TF_CONFIG name different ones.
    """
    named = None
    with contextlib.suppress(ConfigError):  # which is a finding by itself
        named = subject.config.model_dir
    resolved = resolve_model_dir(subject.model_dir, named)
    if resolved is None:
        yield Finding(NOTE, "not looked at; name it with --model-dir")
        return
    path = os.fsdecode(resolved)
    if not is_local(path):
        text = f"{path} is not on a file system of this machine: not looked at"
        yield Finding(NOTE, text)
        return
    existing = path = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    try:
        # Permissions do not show read-only mounts, quotas and full disks.
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-"):
            pass
    except OSError as error:
        text = (
            f"{path} cannot be written: {error.strerror} ({existing}); let the user "
            "of the training write there, or choose another"
        )
        yield Finding(PROBLEM, text)
        return
    free = shutil.disk_usage(existing).free
    verb = "written" if existing == path else "made"
    yield Finding(OK, f"{path} can be {verb}, {size(free)} free")


def check_activation(subject: Subject) -> Iterator[Finding]:
    """Check whether automatic activation is enabled in this Python environment."""
    yield Finding(OK, Activation().describe(subject.environ))
