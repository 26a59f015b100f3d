"""The model directory: whether it can be written, its space, and its checkpoints."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from estimator_runtime.checkpoint import inventory
from estimator_runtime.cli.checkpoints import size
from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.config.paths import is_local
from estimator_runtime.errors import CheckpointError, ConfigError
from estimator_runtime.session.run_config_values import resolve_model_dir


def check_folder(subject: Subject) -> Iterator[Finding]:
    """Check whether the model directory can be written, and has space.

    Raises:
        ConfigError: If the command line and TF_CONFIG name different ones.
    """
    path = _path(subject)
    if path is None:
        yield Finding(NOTE, "not looked at; name it with --model-dir")
        return
    facts: dict[str, Any] = {"path": path}
    if not is_local(path):
        text = f"{path} is not on a file system of this machine: not looked at"
        yield Finding(NOTE, text, facts)
        return
    existing = path
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
        yield Finding(PROBLEM, text, {**facts, "writable": False})
        return
    free = shutil.disk_usage(existing).free
    facts = {**facts, "writable": True, "free_bytes": free}
    with contextlib.suppress(CheckpointError):  # there is none yet, or none to read
        newest = inventory.take(path).newest
        if newest is not None and free < newest.bytes:
            text = (
                f"{path} has {size(free)} free, less than the next checkpoint needs "
                f"({size(newest.bytes)}); make space, or choose another disk"
            )
            yield Finding(PROBLEM, text, facts)
            return
    verb = "written" if existing == path else "made"
    yield Finding(OK, f"{path} can be {verb}, {size(free)} free", facts)


def check_checkpoints(subject: Subject) -> Iterator[Finding]:
    """Check which checkpoint a restart would go on from.

    Raises:
        CheckpointError: If the model directory cannot be read.
    """
    path = None
    with contextlib.suppress(ConfigError):  # a finding about the folder
        path = _path(subject)
    if path is None or not os.path.isdir(path):
        return
    try:
        found = inventory.take(path)
    except CheckpointError as error:
        if error.__cause__ is not None:
            raise
        # The folder is empty, or has no checkpoint.
        yield Finding(OK, "none yet")
        return
    restart = found.restart
    facts = {"count": len(found.entries), "restart": restart and restart.path}
    if restart is not None and found.is_sound:
        yield Finding(OK, f"a restart goes on from step {restart.step}", facts)
        return
    text = (
        "a restart would stop with an error"
        if restart is None
        else (f"a restart would not go on from the newest, but from {restart.path}")
    )
    text += f"; see: estimator-runtime checkpoints {path}"
    yield Finding(PROBLEM, text, facts)


def _path(subject: Subject) -> str | None:
    """Return the model directory as an absolute path or a URL, or None.

    Raises:
        ConfigError: If the command line and TF_CONFIG name different ones.
    """
    named = None if subject.config is None else subject.config.model_dir
    resolved = resolve_model_dir(subject.model_dir, named)
    if resolved is None:
        return None
    path = os.fsdecode(resolved)
    return path if "://" in path else os.path.abspath(path)
