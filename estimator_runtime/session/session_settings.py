"""The settings of a training session: its arguments, resolved and checked."""

import dataclasses
import os
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint import interval
from estimator_runtime.config import options
from estimator_runtime.session import arguments

USE_DEFAULT: Any = object()
_DEFAULT_SUMMARY_STEPS = 100
# Arguments that TensorFlow's session for a multi-worker strategy also takes.
_OF_STRATEGY = (
    "scaffold",
    "checkpoint_dir",
    "save_checkpoint_secs",
    "save_checkpoint_steps",
    "save_summaries_steps",
    "save_summaries_secs",
    "log_step_count_steps",
    "summary_dir",
    "save_graph_def",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """Arguments of `MonitoredTrainingSession`, with their defaults filled in.

    Attributes:
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
    def of(cls, **given: Any) -> "SessionSettings":
        """Return the settings for arguments of `MonitoredTrainingSession`, by name.

        Raises:
            ConfigTypeError: If an interval is not a number.
        """
        overhead = options.current().checkpoint_overhead
        saving = _interval(
            given["save_checkpoint_secs"],
            given["save_checkpoint_steps"],
            default=(interval.for_overhead(overhead), None),
        )
        summarizing = _interval(
            given["save_summaries_steps"],
            given["save_summaries_secs"],
            default=(_DEFAULT_SUMMARY_STEPS, None),
        )
        settings = cls(
            **{
                **given,
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
        arguments.check_intervals(settings.of_strategy())
        return settings

    @property
    def summary_folder(self) -> str | None:
        """The folder for summaries: `summary_dir`, else `checkpoint_dir`, or None."""
        return self.summary_dir or self.checkpoint_dir

    def of_strategy(self) -> dict[str, Any]:
        """Return the arguments of TensorFlow's session for a strategy, by name."""
        return {name: getattr(self, name) for name in _OF_STRATEGY}


def _interval(first: Any, second: Any, default: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the two forms of an interval, or `default` if neither is given."""
    if first is USE_DEFAULT and second is USE_DEFAULT:
        return default
    first, second = (None if each is USE_DEFAULT else each for each in (first, second))
    return first, second


def _path(folder: str | bytes | os.PathLike | None) -> str | None:
    return os.fsdecode(folder) if folder else None
