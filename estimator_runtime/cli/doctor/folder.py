"""The model directory: whether it can be written, and its space."""

import os
import shutil
import tempfile
from collections.abc import Iterator

from estimator_runtime.cli.checkpoints import size
from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.config.paths import is_local
from estimator_runtime.session.run_config_values import resolve_model_dir


def check_folder(subject: Subject) -> Iterator[Finding]:
    """Check whether the model directory can be written, and its free space.

    Raises:
        ConfigError: If the command line and TF_CONFIG name different ones.
    """
    named = None if subject.config is None else subject.config.model_dir
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
