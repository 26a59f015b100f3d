"""What the arguments of a training session may be, checked before anything is made."""

import logging
import os

import tensorflow as tf

from estimator_runtime import settings
from estimator_runtime.checkpoint import files
from estimator_runtime.errors import ConfigError
from estimator_runtime.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
_INTERVAL_UNITS = {
    "save_checkpoint_secs": "seconds",
    "save_checkpoint_steps": "steps",
    "save_summaries_secs": "seconds",
    "save_summaries_steps": "steps",
    "log_step_count_steps": "steps",
}
_CHECKPOINT_DIR = "checkpoint_dir (an Estimator's model_dir)"
_CHECKPOINT_INTERVALS = ("save_checkpoint_secs", "save_checkpoint_steps")
_SUMMARY_INTERVALS = (
    "log_step_count_steps",
    "save_summaries_steps",
    "save_summaries_secs",
)


def is_on(interval):
    """Tell whether an interval, of steps or seconds, is not turned off."""
    return bool(interval) and interval > 0


def check_intervals(arguments):
    """Refuse what cannot be compared with a number, such as "600".

    Args:
        arguments: Of MonitoredTrainingSession, by name.

    Raises:
        ConfigTypeError: If there is such an interval.
    """
    for name, unit in _INTERVAL_UNITS.items():
        if arguments[name] is not None:
            settings.check_number(
                f"MonitoredTrainingSession: {name}",
                settings.plain(arguments[name]),
                f"it should be a number of {unit}, or None",
            )


def check_model_dir(argument: str, folder: str | bytes) -> None:
    """Raise if TensorFlow cannot reload what it saves in this folder.

    Args:
        argument: What the folder was given as, for the message.
        folder: Its path; it need not exist.

    Raises:
        ConfigError: If the path is not UTF-8, or has characters of a pattern.
    """
    path = os.fsdecode(folder)
    _check_utf8(argument, path)
    found = files.PATTERN.search(path)
    if found and "://" not in path:
        raise ConfigError(
            f"{argument} {path!r} has {found[0]!r} in it, which TensorFlow reads as "
            "part of a pattern: it would not find its checkpoints again, or would "
            "delete those in folders that match; give a folder whose path has none of "
            "* ? [ \\"
        )


def _check_utf8(argument: str, path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{argument} {path!r} is not UTF-8, and TensorFlow takes no other path; "
            "give a folder whose path is UTF-8"
        ) from None


def check_folders(arguments, hooks):
    """Raise if the chief cannot use a folder that it is to write to.

    This is called before the model is initialized. A folder that the chief only
    restores from, or writes nothing to, is left alone.

    Args:
        arguments: Of MonitoredTrainingSession, by name.
        hooks: All hooks that the program gives it.

    Raises:
        ConfigError: If there is such a folder.
    """
    folder, summary_dir = arguments["checkpoint_dir"], arguments["summary_dir"]

    def any_is_on(names):
        return any(is_on(arguments[name]) for name in names)

    saves = any_is_on(_CHECKPOINT_INTERVALS) or any(
        _saves_to(folder or "", hook) for hook in hooks
    )
    writes_summaries = any_is_on(_SUMMARY_INTERVALS)
    if folder and (saves or (writes_summaries and not summary_dir)):
        _check_utf8(_CHECKPOINT_DIR, os.fsdecode(folder))
        if saves:
            check_model_dir(_CHECKPOINT_DIR, folder)
        _check_writable(_CHECKPOINT_DIR, os.fsdecode(folder))
    if summary_dir and writes_summaries:
        _check_utf8("summary_dir", os.fsdecode(summary_dir))
        _check_writable("summary_dir", os.fsdecode(summary_dir))


def _saves_to(folder, hook):
    if not isinstance(hook, tf.compat.v1.train.CheckpointSaverHook):
        return False
    # One of the program's own may be made without TensorFlow's constructor.
    saved_to = getattr(hook, "_checkpoint_dir", None) or ""
    return os.fsdecode(saved_to) == os.fsdecode(folder)


def _check_writable(argument, folder):
    if "://" in folder:  # remote storage: TensorFlow's file system will tell
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{argument} {folder!r} cannot be made: {reason}; give a folder that "
            "this process may write"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{argument} {folder!r} cannot be written by this process; change its "
            "permissions, or give another folder"
        )


def say_what_has_no_effect(chosen, checkpoint_dir):
    """Log which options have no effect in TensorFlow's own session.

    Args:
        chosen: `TrainingOptions` of the session.
        checkpoint_dir: Where it saves, or None.
    """
    if chosen.steps_per_run != 1:
        _logger.warning(
            "steps_per_run=%s: steps are run one by one, because the step is that of a "
            "multi-worker strategy",
            chosen.steps_per_run,
        )
    if chosen.async_checkpoint and checkpoint_dir:
        TRAINING_LOG.info(
            "Training waits for each checkpoint in %s, because a multi-worker strategy "
            "saves by TensorFlow's own hook.",
            checkpoint_dir,
        )
