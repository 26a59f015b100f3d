"""What the arguments of a training session may be, checked before anything is made."""

import logging
import os

from estimator_runtime import settings
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
                arguments[name],
                f"it should be a number of {unit}, or None",
            )


def check_folders(arguments):
    """Refuse folders that the chief cannot write, before the model is initialized.

    Args:
        arguments: Of MonitoredTrainingSession, by name.

    Raises:
        ConfigError: If there is such a folder.
    """
    if arguments["checkpoint_dir"]:
        _check_writable(
            "checkpoint_dir (an Estimator's model_dir)", arguments["checkpoint_dir"]
        )
    # Made only where something will be written to it, as TensorFlow does.
    writers = ("log_step_count_steps", "save_summaries_steps", "save_summaries_secs")
    if arguments["summary_dir"] and any(is_on(arguments[name]) for name in writers):
        _check_writable("summary_dir", arguments["summary_dir"])


def _check_writable(argument, folder):
    if isinstance(folder, bytes):
        folder = folder.decode()
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
