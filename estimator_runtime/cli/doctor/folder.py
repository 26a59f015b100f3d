"""The model directory: whether it can be written, its space, and its checkpoints."""

import os
import shutil
import tempfile

from estimator_runtime.checkpoint import inventory
from estimator_runtime.cli.checkpoints import size
from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from estimator_runtime.config.paths import is_local
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.errors import CheckpointError, ConfigError
from estimator_runtime.session.run_config_values import resolve_model_dir


def examine(given: str | None, config: TFConfig | None) -> list[Finding]:
    """Check the model directory.

    Args:
        given: The folder that the command line names, or None.
        config: The TFConfig, or None if TF_CONFIG is invalid.

    Returns:
        One finding about the folder, and one about its checkpoints if it exists on this
        machine and can be written.
    """
    try:
        named = None if config is None else config.model_dir
        resolved = resolve_model_dir(given, named)
    except ConfigError as error:
        text = str(error).removeprefix("RunConfig: ")
        return [Finding(PROBLEM, "model dir", text)]
    if resolved is None:
        text = "not looked at; name it with --model-dir"
        return [Finding(NOTE, "model dir", text)]
    folder = os.fsdecode(resolved)
    if not is_local(folder):
        text = f"{folder} is not on a file system of this machine: not looked at"
        facts = {"path": folder}
        return [Finding(NOTE, "model dir", text, facts)]
    return _examine_local(os.path.abspath(folder))


def _examine_local(folder: str) -> list[Finding]:
    existing = folder
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    try:
        # Permissions do not show read-only mounts, quotas and full disks.
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-"):
            pass
    except OSError as error:
        text = (
            f"{folder} cannot be written: {error.strerror} ({existing}); let the user "
            "of the training write there, or choose another"
        )
        facts = {"path": folder, "writable": False}
        return [Finding(PROBLEM, "model dir", text, facts)]
    free = shutil.disk_usage(existing).free
    facts = {"path": folder, "writable": True, "free_bytes": free}
    is_new = existing != folder
    text = (
        f"{folder} {'can be made' if is_new else 'can be written'}, {size(free)} free"
    )
    good = Finding(OK, "model dir", text, facts)
    if is_new:
        return [good]
    try:
        found = inventory.take(folder)
    except CheckpointError as error:
        if error.__cause__ is None:  # the folder is empty, or has no checkpoint
            return [good, Finding(OK, "checkpoints", "none yet")]
        return [good, Finding(PROBLEM, "checkpoints", str(error))]
    return [_with_space(good, found, free), _examine_checkpoints(found)]


def _with_space(good: Finding, found: inventory.Inventory, free: int) -> Finding:
    """Return `good`, or a problem if the next checkpoint needs more space."""
    newest = found.newest
    if newest is None or free >= newest.bytes:
        return good
    text = (
        f"{found.folder} has {size(free)} free, less than the next checkpoint needs "
        f"({size(newest.bytes)}); make space, or choose another disk"
    )
    return Finding(PROBLEM, "model dir", text, good.facts)


def _examine_checkpoints(found: inventory.Inventory) -> Finding:
    restart = found.restart
    facts = {
        "count": len(found.entries),
        "restart": None if restart is None else restart.path,
    }
    look = f"see: estimator-runtime checkpoints {found.folder}"
    if found.newest is None:
        text = f"none complete, only what saves have left or are writing; {look}"
        return Finding(NOTE, "checkpoints", text, facts)
    if found.newest.state == inventory.UNREADABLE:
        text = f"a training would stop with an error: {found.newest.reason}; {look}"
    elif restart is None:
        text = (
            f"none that can be used: a training would stop with an error; {look}, and "
            "move them away to start over"
        )
    elif not found.is_sound:
        text = (
            f"a restart would not go on from the newest, of step {found.newest.step}, "
            f"but from {restart.path}; {look}"
        )
    else:
        text = f"a restart goes on from step {restart.step}"
        return Finding(OK, "checkpoints", text, facts)
    return Finding(PROBLEM, "checkpoints", text, facts)
