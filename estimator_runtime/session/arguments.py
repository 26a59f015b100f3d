"""Checks of the arguments of a training session, made before the session exists."""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import tensorflow as tf

from estimator_runtime.checkpoint.store import files
from estimator_runtime.config.options import TrainingOptions
from estimator_runtime.errors import ConfigError
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.session import run_config_values

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


def is_on(interval: Any) -> TypeGuard[float]:
    """Return whether an interval, in steps or seconds, is enabled."""
    return bool(interval) and interval > 0


def check_intervals(arguments: Mapping[str, Any]) -> None:
    """Raise if an interval is not a number, such as "600".

    Args:
        arguments: Arguments of MonitoredTrainingSession, by name.

    Raises:
        ConfigTypeError: If there is such an interval.
    """
    for name, unit in _INTERVAL_UNITS.items():
        if arguments[name] is not None:
            run_config_values.check_number(
                f"MonitoredTrainingSession: {name}",
                run_config_values.plain(arguments[name]),
                f"it should be a number of {unit}, or None",
            )


def check_folders(
    arguments: Mapping[str, Any],
    hooks: Iterable[tf.compat.v1.train.SessionRunHook],
) -> None:
    """Raise if the chief cannot use a folder that it has to write to.

    Call this before the model is initialized. A folder that the chief only restores
    from, or writes nothing to, is not checked.

    Args:
        arguments: Arguments of MonitoredTrainingSession, by name.
        hooks: All hooks that the program passes to it.

    Raises:
        ConfigError: If there is such a folder.
    """
    folder, summary_dir = arguments["checkpoint_dir"], arguments["summary_dir"]

    def any_is_on(names: Iterable[str]) -> bool:
        return any(is_on(arguments[name]) for name in names)

    saves = any_is_on(_CHECKPOINT_INTERVALS) or any(
        _saves_to(folder or "", hook) for hook in hooks
    )
    writes_summaries = any_is_on(_SUMMARY_INTERVALS)
    if folder and (saves or (writes_summaries and not summary_dir)):
        files.check_utf8(_CHECKPOINT_DIR, os.fsdecode(folder))
        if saves:
            files.check_model_dir(_CHECKPOINT_DIR, folder)
        _check_writable(_CHECKPOINT_DIR, os.fsdecode(folder))
    if summary_dir and writes_summaries:
        files.check_utf8("summary_dir", os.fsdecode(summary_dir))
        _check_writable("summary_dir", os.fsdecode(summary_dir))


def _saves_to(folder: str | bytes, hook: tf.compat.v1.train.SessionRunHook) -> bool:
    if not isinstance(hook, tf.compat.v1.train.CheckpointSaverHook):
        return False
    # A subclass in the program may not call TensorFlow's constructor.
    saved_to = getattr(hook, "_checkpoint_dir", None) or ""
    return os.fsdecode(saved_to) == os.fsdecode(folder)


def _check_writable(argument: str, folder: str) -> None:
    if "://" in folder:  # remote storage: TensorFlow's file system reports errors
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


def say_what_has_no_effect(
    chosen: TrainingOptions, checkpoint_dir: str | bytes | None
) -> None:
    """Log the options that have no effect in TensorFlow's own session.

    Args:
        chosen: `TrainingOptions` of the session.
        checkpoint_dir: Folder that the session saves to, or None.
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
