"""The hooks of every training, in the order in which a session calls them.

TensorFlow calls the hooks of a list in turn, also at the end of a training. So what
waits for other tasks comes first, and what saves comes before the hooks of the program.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint import interval
from estimator_runtime.checkpoint.hook import asynchronous
from estimator_runtime.output import metrics_file, progress_bar
from estimator_runtime.session.hooks.progress import ProgressHook, WatchedHook
from estimator_runtime.session.hooks.step_rate import StepRateHook
from estimator_runtime.session.settings import SessionSettings, is_on
from estimator_runtime.tf_internals import hooks as tf_hooks
from estimator_runtime.tf_internals import sessions

_train = tf.compat.v1.train
_Hook: TypeAlias = tf.compat.v1.train.SessionRunHook


def all_hooks(
    settings: SessionSettings,
    creator: Any,
    *,
    first: Sequence[_Hook],
    chief_only: Sequence[_Hook],
    program: Sequence[_Hook],
) -> list[_Hook]:
    """Return all hooks of a session, in the order in which they are called.

    Args:
        settings: The settings of the session.
        creator: The session creator, which records what it has restored.
        first: Hooks whose `end` has to run before that of the hooks that save.
        chief_only: The program's hooks for the chief.
        program: The program's hooks for every task.
    """
    if not settings.is_chief:
        return [*first, *program]
    options = settings.options
    hooks = asynchronous(
        [*first, *chief_only, *_chief_hooks(settings), *program],
        creator,
        is_async=options.async_checkpoint,
        overhead=options.checkpoint_overhead,
    )
    return [*hooks, *_progress(settings, hooks)]


def launcher_reports(
    settings: SessionSettings, hooks: Sequence[_Hook]
) -> list[ProgressHook]:
    """Return the hook that reports to the launcher, if there is a launcher.

    It reads from `hooks`, which have to be called before it.
    """
    folder = settings.checkpoint_dir
    path = reporting.absolute(folder) if folder else ""
    strategy = sessions.current_worker_context()
    if path and (strategy.is_chief if strategy else settings.is_chief):
        intervals = settings.save_checkpoint_secs, settings.save_checkpoint_steps
        saves = any(map(is_on, intervals)) or any(
            isinstance(each, _train.CheckpointSaverHook) for each in hooks
        )
        # For programs without train_and_evaluate, which reports it earlier.
        reporting.send(checkpoint_dir=path, saves=saves)
    if not reporting.is_on():
        return []
    is_alone = not (settings.master or strategy)
    return [ProgressHook(hooks, path, trains_alone=is_alone)]


def is_synchronous(hooks: Sequence[_Hook]) -> bool:
    """Return whether the program trains with a SyncReplicasOptimizer."""
    return any(isinstance(each, tf_hooks.SyncReplicasOptimizerHook) for each in hooks)


def ignores_overhead(settings: SessionSettings, hooks: Sequence[_Hook]) -> bool:
    """Return whether an overhead is given, and an interval of the program overrides it.

    Args:
        settings: The settings of the session.
        hooks: All hooks of the program.
    """
    savers = [each for each in hooks if isinstance(each, _train.CheckpointSaverHook)]
    follows = any(map(interval.is_default, savers)) or (
        settings.save_checkpoint_secs == interval.DEFAULT_SECS
    )
    return settings.options.checkpoint_overhead is not None and not follows


def _chief_hooks(settings: SessionSettings) -> list[_Hook]:
    """Return the hooks that log, summarize and save, in TensorFlow's order."""
    folder = settings.summary_folder
    every_steps, every_secs = (
        settings.save_summaries_steps,
        settings.save_summaries_secs,
    )
    hooks: list[_Hook] = []
    if folder and is_on(settings.log_step_count_steps):
        hooks.append(
            StepRateHook(output_dir=folder, every_n_steps=settings.log_step_count_steps)
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


def _progress(settings: SessionSettings, hooks: Sequence[_Hook]) -> list[_Hook]:
    """Return the hook that shows a chief's progress, unless a launcher shows it."""
    if reporting.is_on():
        return []
    displays: list[Callable[[progress_bar.Progress], Any]] = []
    if display := progress_bar.choose(settings.options.progress):
        displays.append(display)
    path = metrics_file.path_in(os.environ)
    if path is not None:
        file = metrics_file.MetricsFile(path)
        displays.append(lambda first: metrics_file.MetricsDisplay(first, file))
    if not displays:
        return []
    return [WatchedHook(list(hooks), settings.checkpoint_dir, displays)]
