"""The settings of a training session: its arguments, resolved and checked."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import tensorflow as tf

from estimator_runtime.checkpoint import interval
from estimator_runtime.config import paths
from estimator_runtime.config.options import TrainingOptions
from estimator_runtime.session import run_config_values
from estimator_runtime.tf_internals.sessions import USE_DEFAULT

_DEFAULT_SUMMARY_STEPS = 100
# Those that TensorFlow's session for a multi-worker strategy does not take from here.
_NOT_OF_STRATEGY = {"options", "master", "is_chief", "max_wait_secs"}
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """Everything that a training session is told; the loop and the hooks read it here.

    These are the arguments of `MonitoredTrainingSession`, with their defaults filled
    in, and the options that its signature has no place for.

    Attributes:
        options: The `TrainingOptions`.
        master: Session target.
        is_chief: Whether this task initializes the model, saves and writes summaries.
        scaffold: `tf.compat.v1.train.Scaffold`.
        checkpoint_dir: Folder to restore from and save to, or None.
        summary_dir: Folder for summaries if it differs from `checkpoint_dir`, or None.
        save_checkpoint_secs: Seconds between checkpoints, or None.
        save_checkpoint_steps: Steps between checkpoints, or None.
        save_summaries_secs: Seconds between summaries, or None.
        save_summaries_steps: Steps between summaries, or None.
        log_step_count_steps: Steps between lines of steps/sec, or None.
        save_graph_def: Whether the graph is written next to the checkpoints.
        max_wait_secs: Longest wait for other tasks, in seconds, or None.
    """

    options: TrainingOptions
    master: str
    is_chief: bool
    scaffold: tf.compat.v1.train.Scaffold
    checkpoint_dir: str | None
    summary_dir: str | None
    save_checkpoint_secs: float | None
    save_checkpoint_steps: int | None
    save_summaries_secs: float | None
    save_summaries_steps: int | None
    log_step_count_steps: int | None
    save_graph_def: bool
    max_wait_secs: float | None

    @classmethod
    def of(
        cls, options: TrainingOptions, arguments: Mapping[str, Any]
    ) -> "SessionSettings":
        """Return the settings for all arguments of `MonitoredTrainingSession`, by name.

        Raises:
            ConfigTypeError: If an interval is not a number.
        """
        names = {field.name for field in dataclasses.fields(cls)} & arguments.keys()
        given = {name: arguments[name] for name in names}
        saving = _interval(
            given["save_checkpoint_secs"],
            given["save_checkpoint_steps"],
            default=(interval.DEFAULT_SECS, None),
        )
        summarizing = _interval(
            given["save_summaries_steps"],
            given["save_summaries_secs"],
            default=(_DEFAULT_SUMMARY_STEPS, None),
        )
        settings = cls(
            **{
                **given,
                "options": options,
                "scaffold": given["scaffold"] or tf.compat.v1.train.Scaffold(),
                # The hooks accept no path objects, and not all of them accept bytes.
                "checkpoint_dir": _path(given["checkpoint_dir"]),
                "summary_dir": _path(given["summary_dir"]),
                "save_checkpoint_secs": saving[0],
                "save_checkpoint_steps": saving[1],
                "save_summaries_steps": summarizing[0],
                "save_summaries_secs": summarizing[1],
            }
        )
        for name in (*_CHECKPOINT_INTERVALS, *_SUMMARY_INTERVALS):
            value = getattr(settings, name)
            if value is not None:
                unit = "seconds" if name.endswith("_secs") else "steps"
                run_config_values.check_number(
                    f"MonitoredTrainingSession: {name}",
                    run_config_values.plain(value),
                    f"it should be a number of {unit}, or None",
                )
        return settings

    @property
    def summary_folder(self) -> str | None:
        """The folder for summaries: `summary_dir`, else `checkpoint_dir`, or None."""
        return self.summary_dir or self.checkpoint_dir

    def of_strategy(self) -> dict[str, Any]:
        """Return the arguments of TensorFlow's session for a strategy, by name."""
        names = {field.name for field in dataclasses.fields(self)} - _NOT_OF_STRATEGY
        return {name: getattr(self, name) for name in names}

    def check_folders(self, hooks: Iterable[tf.compat.v1.train.SessionRunHook]) -> None:
        """Raise if the chief cannot use a folder that it has to write to.

        Call this before the model is initialized. A folder that the chief only restores
        from, or writes nothing to, is not checked.

        Args:
            hooks: All hooks of the program.

        Raises:
            ConfigError: If there is such a folder.
        """
        folder, summary_dir = self.checkpoint_dir, self.summary_dir
        saves = self._any_is_on(_CHECKPOINT_INTERVALS) or any(
            _saves_to(folder or "", hook) for hook in hooks
        )
        writes_summaries = self._any_is_on(_SUMMARY_INTERVALS)
        if folder and (saves or (writes_summaries and not summary_dir)):
            paths.check_utf8(_CHECKPOINT_DIR, folder)
            if saves:
                paths.check_model_dir(_CHECKPOINT_DIR, folder)
            paths.check_writable(_CHECKPOINT_DIR, folder)
        if summary_dir and writes_summaries:
            paths.check_utf8("summary_dir", summary_dir)
            paths.check_writable("summary_dir", summary_dir)

    def _any_is_on(self, names: Sequence[str]) -> bool:
        return any(is_on(getattr(self, name)) for name in names)


def _interval(first: Any, second: Any, default: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the two forms of an interval, or `default` if neither is given."""
    if first is USE_DEFAULT and second is USE_DEFAULT:
        return default
    first, second = (None if each is USE_DEFAULT else each for each in (first, second))
    return first, second


def _path(folder: str | bytes | os.PathLike | None) -> str | None:
    return os.fsdecode(folder) if folder else None


def _saves_to(folder: str, hook: tf.compat.v1.train.SessionRunHook) -> bool:
    if not isinstance(hook, tf.compat.v1.train.CheckpointSaverHook):
        return False
    # A subclass in the program may not call TensorFlow's constructor.
    saved_to = getattr(hook, "_checkpoint_dir", None) or ""
    return os.fsdecode(saved_to) == folder
