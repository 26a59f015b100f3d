"""The hooks that a session adds to those of the program, and their order."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint.hook import asynchronous
from estimator_runtime.config import options
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers
from estimator_runtime.output import metrics_file, progress_bar
from estimator_runtime.session.hooks.progress import WatchedHook
from estimator_runtime.session.hooks.step_rate import StepRateHook, TaskRateHook
from estimator_runtime.session.settings import SessionSettings, is_on

_train = tf.compat.v1.train
_Hooks = list[tf.compat.v1.train.SessionRunHook]


def default_hooks(
    settings: SessionSettings,
    creator: Any,
    *,
    first: Sequence[tf.compat.v1.train.SessionRunHook],
    chief_only: Sequence[tf.compat.v1.train.SessionRunHook],
    program: Sequence[tf.compat.v1.train.SessionRunHook],
    batches_per_step: int = 1,
) -> _Hooks:
    """Return all hooks of a session, in the order in which they are called.

    Args:
        settings: The settings of the session.
        creator: The session creator, which records what it has restored.
        first: Hooks whose `end` has to run before that of the hooks that save.
        chief_only: The program's hooks for the chief.
        program: The program's hooks for every task.
        batches_per_step: Batches in one global step.
    """
    if not settings.is_chief:
        return [*first, *program, *_task_rate(settings)]
    chief = _chief_hooks(settings, batches_per_step)
    hooks = asynchronous([*first, *chief_only, *chief, *program], creator)
    return [*hooks, *_progress(settings, hooks), *_task_rate(settings)]


def _chief_hooks(settings: SessionSettings, batches_per_step: int) -> _Hooks:
    """Return the hooks that log, summarize and save, in TensorFlow's order."""
    folder = settings.summary_folder
    every_steps, every_secs = (
        settings.save_summaries_steps,
        settings.save_summaries_secs,
    )
    hooks: _Hooks = []
    if folder and is_on(settings.log_step_count_steps):
        hooks.append(
            StepRateHook(
                output_dir=folder,
                every_n_steps=settings.log_step_count_steps,
                batches_per_step=batches_per_step,
            )
        )
    if folder and (is_on(every_steps) or is_on(every_secs)):
        hooks.append(
            _train.SummarySaverHook(
                scaffold=settings.scaffold,
                save_steps=every_steps,
                save_secs=every_secs,
                output_dir=folder,
            )
        )
    every_steps = settings.save_checkpoint_steps
    saves = is_on(every_steps) or is_on(settings.save_checkpoint_secs)
    if settings.checkpoint_dir and saves:
        hooks.append(
            _train.CheckpointSaverHook(
                settings.checkpoint_dir,
                save_secs=settings.save_checkpoint_secs,
                save_steps=every_steps,
                scaffold=settings.scaffold,
                save_graph_def=settings.save_graph_def,
            )
        )
    return hooks


def _progress(settings: SessionSettings, hooks: _Hooks) -> _Hooks:
    """Return the hooks that show a chief's progress, unless a launcher shows it."""
    if reporting.is_on():
        return []
    displays: list[Callable[[progress_bar.Progress], Any] | None] = [
        progress_bar.choose(options.current().progress)
    ]
    path = metrics_file.path_in(os.environ)
    if path is not None:
        file = metrics_file.MetricsFile(path)
        displays.append(lambda first: metrics_file.MetricsDisplay(first, file))
    return [
        WatchedHook(hooks[:], settings.checkpoint_dir, make_display)
        for make_display in displays
        if make_display is not None
    ]


def _task_rate(settings: SessionSettings) -> _Hooks:
    """Return the hook for a task's own step rate.

    A chief has one only if other tasks train too.
    """
    every_n_steps = settings.log_step_count_steps
    if not is_on(every_n_steps):
        return []
    folder = settings.summary_folder
    task = peers.this_task() if settings.master else None
    cluster = task.cluster if task else {}
    if not settings.is_chief:
        # Not the chief's folder: TensorBoard would show two writers as one run.
        run = f"{task.task_type}-{task.task_index}" if task and task.task_type else None
        return [TaskRateHook(every_n_steps, folder if run else None, run)]
    trainers = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
    if len(peers.tasks(cluster, trainers)) < 2:
        return []
    return [TaskRateHook(every_n_steps, folder)]
