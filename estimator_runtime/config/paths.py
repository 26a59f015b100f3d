"""Paths of model directories and checkpoints, as strings.

A checkpoint's path has no suffix, such as "/ckpt/model.ckpt-100".
"""

import os
import re

from estimator_runtime.errors import ConfigError

# TensorFlow reads a path with one of these characters as a pattern, and restores or
# deletes each file that matches; see FileSystem::GetMatchingPaths in its core/platform.
PATTERN = re.compile(r"[*?\[\\]")


def is_local(path: str) -> bool:
    """Return whether a path is on a file system of this machine, not remote storage."""
    return "://" not in path


def step_of(prefix: str) -> int | None:
    """Return the number at the end of a checkpoint's name, or None."""
    digits = re.search(r"-(\d+)\Z", without_shards(prefix))
    return int(digits.group(1)) if digits else None


def without_shards(prefix: str) -> str:
    """Return a checkpoint's path without the pattern of the shards of the V1 format."""
    return re.sub(r"-\?{5}-of-\d+$", "", prefix)


def check_model_dir(argument: str, folder: str | bytes) -> None:
    """Raise if TensorFlow could not find the checkpoints that it saves in a folder.

    Args:
        argument: Name of the argument with the folder, for the message.
        folder: Path of the folder; it need not exist.

    Raises:
        ConfigError: If the path is not UTF-8, or contains characters of a pattern.
    """
    path = os.fsdecode(folder)
    check_utf8(argument, path)
    found = PATTERN.search(path)
    if found and is_local(path):
        raise ConfigError(
            f"{argument} {path!r} has {found[0]!r} in it, which TensorFlow reads as "
            "part of a pattern: it would not find its checkpoints again, or would "
            "delete those in folders that match; give a folder whose path has none of "
            "* ? [ \\"
        )


def check_writable(argument: str, folder: str) -> None:
    """Create a folder if it does not exist; raise if this process cannot write to it.

    Args:
        argument: Name of the argument with the folder, for the message.
        folder: Path of the folder. Remote storage is not checked.

    Raises:
        ConfigError: If the folder cannot be created or written.
    """
    if not is_local(folder):
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{argument} {folder!r} cannot be created: {reason}; give a folder that "
            "this process may write"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{argument} {folder!r} cannot be written by this process; change its "
            "permissions, or give another folder"
        )


def check_utf8(argument: str, path: str) -> None:
    """Raise a ConfigError about an argument if its path is not UTF-8.

    TensorFlow takes no other path.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{argument} {path!r} is not UTF-8, and TensorFlow takes no other path; "
            "give one whose path is UTF-8, or set PYTHONUTF8=1 if the locale is not"
        ) from None
