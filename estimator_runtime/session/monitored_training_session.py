"""The runtime's MonitoredTrainingSession, in which every Estimator trains."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint import interval
from estimator_runtime.checkpoint.hook import asynchronous
from estimator_runtime.config import options
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import coordination, input_sharding, peers
from estimator_runtime.loop.session import LoopSession
from estimator_runtime.output import metrics_file, progress_bar, tensorboard
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.patching import frozen
from estimator_runtime.session.creators import session_creator
from estimator_runtime.session.hooks import peer_hooks
from estimator_runtime.session.hooks.progress import ProgressHook, WatchedHook
from estimator_runtime.session.hooks.step_rate import StepRateHook, TaskRateHook
from estimator_runtime.session.settings import SessionSettings, is_on
from estimator_runtime.tf_internals import internals
from estimator_runtime.tf_internals.internals import USE_DEFAULT

_logger = logging.getLogger(__name__)
_SYNCHRONOUS_GRACE_SECS = 1
_train = tf.compat.v1.train
_Hooks = Sequence[tf.compat.v1.train.SessionRunHook]
_HookList = list[tf.compat.v1.train.SessionRunHook]


@frozen.replaces(
    "tensorflow.python.training.training", internals.StockMonitoredTrainingSession
)
def MonitoredTrainingSession(
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | bytes | os.PathLike | None = None,
    scaffold: tf.compat.v1.train.Scaffold | None = None,
    hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
    chief_only_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
    save_checkpoint_secs: float | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    config: tf.compat.v1.ConfigProto | None = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float | None = 7200,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    summary_dir: str | bytes | os.PathLike | None = None,
    save_graph_def: bool = True,
) -> tf.compat.v1.train.MonitoredSession:
    """Return a session that initializes or restores a model and trains it.

    The signature, the defaults and their meaning are those of
    `tf.compat.v1.train.MonitoredTrainingSession`, but training continues while a
    checkpoint is written. The session uses the default graph: build the model and call
    this function inside `with tf.Graph().as_default()`, with eager execution on or off.

    Args:
        master: Session target: "" for this process, or "grpc://host:port".
        is_chief: Whether this task initializes or restores the variables, saves
            checkpoints and writes summaries. The other tasks wait for it.
        checkpoint_dir: Folder to restore from and save to, as str or `os.PathLike`;
            None for neither.
        scaffold: `tf.compat.v1.train.Scaffold`, or None for a default one.
        hooks: Hooks that run in every task.
        chief_only_hooks: Hooks that run in the chief, before the others.
        save_checkpoint_secs: Seconds between checkpoints; 600 if neither interval
            is given. None or 0 disables it.
        save_summaries_steps: Steps between summaries; 100 if neither interval is
            given. None or 0 disables it.
        save_summaries_secs: Seconds between summaries; off by default.
        config: `tf.compat.v1.ConfigProto` of the session.
        stop_grace_period_secs: Seconds that threads have to stop at close.
        log_step_count_steps: Steps between steps/sec log lines; None or 0 for none.
            A task that is not chief logs the rate of its own steps.
        max_wait_secs: Longest wait for other tasks, in seconds: for a ps, and in a
            task that is not chief also for the chief. None for no limit.
        save_checkpoint_steps: Steps between checkpoints; off by default.
        summary_dir: Folder for summaries; None for `checkpoint_dir`.
        save_graph_def: Whether the graph is written next to the checkpoints.

    Returns:
        A `tf.compat.v1.train.MonitoredSession`.

    Raises:
        CheckpointError: If the checkpoints of the folder cannot be used, or belong to
            another model. `run` and the end of the session raise it if a checkpoint
            cannot be written.
        ConfigError: If the chief cannot write to a folder that it has to write to.
        ConfigTypeError: If an interval is not a number.
        RuntimeError: If it is called in eager mode, outside of any graph.
        ValueError: If both intervals of checkpoints, or of summaries, are given.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "MonitoredTrainingSession trains a graph, and eager execution is on here; "
            "build the model and the session inside `with tf.Graph().as_default():`"
        )
    settings = SessionSettings.of(
        master=master,
        is_chief=is_chief,
        scaffold=scaffold,
        checkpoint_dir=checkpoint_dir,
        summary_dir=summary_dir,
        save_checkpoint_secs=save_checkpoint_secs,
        save_checkpoint_steps=save_checkpoint_steps,
        save_summaries_secs=save_summaries_secs,
        save_summaries_steps=save_summaries_steps,
        log_step_count_steps=log_step_count_steps,
        save_graph_def=save_graph_def,
        max_wait_secs=max_wait_secs,
    )
    # Either may be an iterator, which yields its hooks only once.
    hooks, chief_only_hooks = list(hooks or ()), list(chief_only_hooks or ())
    if is_chief:
        settings.check_folders([*hooks, *chief_only_hooks])
        tensorboard.start_if_requested(settings.summary_folder)
    batches_per_step = _batches_per_step(hooks)
    if batches_per_step is not None:
        reporting.send(synchronous=True)
        # A thread of the chief waits for the next gradients, and so never ends.
        stop_grace_period_secs = min(stop_grace_period_secs, _SYNCHRONOUS_GRACE_SECS)
    hooks += _reports(settings, [*chief_only_hooks, *hooks])
    strategy = internals.current_worker_context()
    # First: their `end` has to run before that of the hooks that save.
    guards = peer_hooks.watchdogs(
        master, max_wait_secs, settings.checkpoint_dir, in_step=bool(strategy)
    )
    last_steps: _HookList = []
    # The chief of a SyncReplicasOptimizer takes the steps for all.
    if batches_per_step is None and (master or strategy):
        leads = strategy.is_chief if strategy else is_chief
        last_steps = peer_hooks.last_steps(leads, settings.checkpoint_dir, config)
    if strategy:
        return _session_of_strategy(
            strategy,
            settings,
            guards=guards,
            hooks=hooks,
            last_steps=last_steps,
            chief_only_hooks=chief_only_hooks,
            config=config,
            stop_grace_period_secs=stop_grace_period_secs,
        )
    if reporting.is_on():
        reporting.send(
            input=input_sharding.fingerprint(tf.compat.v1.get_default_graph())
        )
    creator = session_creator(settings, config)
    all_hooks = default_hooks(
        settings,
        creator,
        first=[*last_steps, *guards],
        chief_only=chief_only_hooks,
        program=hooks,
        batches_per_step=batches_per_step or 1,
    )
    return LoopSession(
        session_creator=creator,
        hooks=all_hooks,
        stop_grace_period_secs=stop_grace_period_secs,
    )


def _batches_per_step(hooks: _Hooks) -> int | None:
    """Return how many batches a SyncReplicasOptimizer aggregates, or None."""
    synchronous = internals.SyncReplicasOptimizerHook
    found = [each for each in hooks if isinstance(each, synchronous)]
    return found[-1]._sync_optimizer._replicas_to_aggregate if found else None


def _reports(settings: SessionSettings, hooks: _Hooks) -> list[ProgressHook]:
    """Return the hook that reports to the launcher, if there is a launcher.

    It reads from `hooks`, which have to be called before it.
    """
    folder = ""
    if settings.checkpoint_dir:
        folder = reporting.absolute(os.fsdecode(settings.checkpoint_dir))
    if settings.is_chief and folder:
        # For programs without train_and_evaluate, which reports it earlier.
        reporting.send(checkpoint_dir=folder)
    return [ProgressHook(hooks, folder)] if reporting.is_on() else []


def _session_of_strategy(
    strategy: Any,
    settings: SessionSettings,
    *,
    guards: Sequence[Any],
    hooks: list[Any],
    last_steps: list[Any],
    chief_only_hooks: list[Any],
    config: tf.compat.v1.ConfigProto | None,
    stop_grace_period_secs: float,
) -> tf.compat.v1.train.MonitoredSession:
    """Return TensorFlow's session for a task of a multi-worker strategy.

    `strategy`, the worker context of TensorFlow's coordinator, decides which task saves
    and logs; the arguments do not. `guards` are the hooks that watch the other tasks.
    """
    folder = settings.checkpoint_dir
    _log_ignored_options(options.current(), folder)
    interval.fix([*hooks, *chief_only_hooks])
    common = settings.of_strategy()
    common["save_checkpoint_secs"] = interval.fixed(settings.save_checkpoint_secs)
    coordination.check_restored(strategy, folder)
    try:
        session = internals.session_with_worker_context(
            strategy,
            hooks=[
                *last_steps,
                *guards,
                *hooks,
                peer_hooks.CoordinatedStopHook(strategy),
            ],
            chief_only_hooks=chief_only_hooks,
            config=config,
            stop_grace_period_secs=stop_grace_period_secs,
            max_wait_secs=settings.max_wait_secs,
            **common,
        )
    except BaseException:
        for guard in guards:
            guard.stop()
        raise
    if coordination.peers(strategy):
        # After a failed collective op, all later ones of this process fail
        # (BaseCollectiveExecutor::StartAbort). And a session that is restored does not
        # have the values of the other trainers, which are some steps ahead.
        internals.stop_recovering(
            session, lambda error: [guard.on_loss(error) for guard in guards]
        )
    for guard in guards:
        guard.belong_to(session)
    return session


def _log_ignored_options(
    chosen: options.TrainingOptions, checkpoint_dir: str | bytes | None
) -> None:
    """Log the options that have no effect in TensorFlow's own session."""
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


def default_hooks(
    settings: SessionSettings,
    creator: Any,
    *,
    first: Sequence[tf.compat.v1.train.SessionRunHook],
    chief_only: Sequence[tf.compat.v1.train.SessionRunHook],
    program: Sequence[tf.compat.v1.train.SessionRunHook],
    batches_per_step: int = 1,
) -> _HookList:
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


def _chief_hooks(settings: SessionSettings, batches_per_step: int) -> _HookList:
    """Return the hooks that log, summarize and save, in TensorFlow's order."""
    folder = settings.summary_folder
    every_steps, every_secs = (
        settings.save_summaries_steps,
        settings.save_summaries_secs,
    )
    hooks: _HookList = []
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


def _progress(settings: SessionSettings, hooks: _HookList) -> _HookList:
    """Return the hook that shows a chief's progress, unless a launcher shows it."""
    if reporting.is_on():
        return []
    displays: list[Callable[[progress_bar.Progress], Any]] = []
    if display := progress_bar.choose(options.current().progress):
        displays.append(display)
    path = metrics_file.path_in(os.environ)
    if path is not None:
        file = metrics_file.MetricsFile(path)
        displays.append(lambda first: metrics_file.MetricsDisplay(first, file))
    if not displays:
        return []
    return [WatchedHook(hooks[:], settings.checkpoint_dir, displays)]


def _task_rate(settings: SessionSettings) -> _HookList:
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
