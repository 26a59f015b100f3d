"""The runtime's MonitoredTrainingSession, in which every Estimator trains."""

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.config import options
from estimator_runtime.distributed import coordination
from estimator_runtime.loop.session import LoopSession
from estimator_runtime.output import tensorboard
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.patching import frozen
from estimator_runtime.session.creators import session_creator
from estimator_runtime.session.hooks import peer_watchdog, standard
from estimator_runtime.session.hooks.coordinated_stop import CoordinatedStopHook
from estimator_runtime.session.hooks.last_steps import last_steps
from estimator_runtime.session.settings import SessionSettings
from estimator_runtime.tf_internals import sessions
from estimator_runtime.tf_internals.sessions import USE_DEFAULT

_logger = logging.getLogger(__name__)
_SYNCHRONOUS_GRACE_SECS = 1


@frozen.replaces(
    "tensorflow.python.training.training", sessions.StockMonitoredTrainingSession
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
            Only the chief logs them.
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
    arguments = {**locals()}  # all, by name
    if tf.executing_eagerly():
        raise RuntimeError(
            "MonitoredTrainingSession trains a graph, and eager execution is on here; "
            "build the model and the session inside `with tf.Graph().as_default():`"
        )
    settings = SessionSettings.of(
        options.current(tf.compat.v1.get_default_graph()), arguments
    )
    # Either may be an iterator, which yields its hooks only once.
    hooks, chief_only_hooks = list(hooks or ()), list(chief_only_hooks or ())
    if is_chief:
        settings.check_folders([*hooks, *chief_only_hooks])
        tensorboard.start_if_requested(settings.summary_folder)
        if standard.ignores_overhead(settings, [*hooks, *chief_only_hooks]):
            _logger.warning(
                "checkpoint_overhead=%s has no effect: the program sets an interval of "
                "its own for checkpoints",
                settings.options.checkpoint_overhead,
            )
    is_synchronous = standard.is_synchronous(hooks)
    if is_synchronous:
        reporting.send(synchronous=True)
        # A thread of the chief waits for the next gradients, and so never ends.
        stop_grace_period_secs = min(stop_grace_period_secs, _SYNCHRONOUS_GRACE_SECS)
    hooks += standard.launcher_reports(settings, [*chief_only_hooks, *hooks])
    strategy = sessions.current_worker_context()
    guards = peer_watchdog.watchdogs(
        master, max_wait_secs, settings.checkpoint_dir, in_step=bool(strategy)
    )
    first: list[tf.compat.v1.train.SessionRunHook] = [*guards]
    # The chief of a SyncReplicasOptimizer takes the steps for all.
    if not is_synchronous and (master or strategy):
        leads = strategy.is_chief if strategy else is_chief
        first = [*last_steps(leads, settings.checkpoint_dir, config), *guards]
    if strategy:
        return _session_of_strategy(
            strategy,
            settings,
            guards=guards,
            hooks=[*first, *hooks],
            chief_only_hooks=chief_only_hooks,
            config=config,
            stop_grace_period_secs=stop_grace_period_secs,
        )
    creator = session_creator(settings, config)
    return LoopSession(
        session_creator=creator,
        hooks=standard.all_hooks(
            settings,
            creator,
            first=first,
            chief_only=chief_only_hooks,
            program=hooks,
        ),
        stop_grace_period_secs=stop_grace_period_secs,
        loop=settings.options.loop,
        steps_per_run=_steps_per_run(settings),
        pack_transfers=settings.options.pack_transfers,
    )


def _session_of_strategy(
    strategy: Any,
    settings: SessionSettings,
    *,
    guards: Sequence[Any],
    hooks: list[Any],
    chief_only_hooks: list[Any],
    config: tf.compat.v1.ConfigProto | None,
    stop_grace_period_secs: float,
) -> tf.compat.v1.train.MonitoredSession:
    """Return TensorFlow's session for a task of a multi-worker strategy.

    `strategy`, the worker context of TensorFlow's coordinator, decides which task saves
    and logs; the arguments do not. `guards` are the hooks that watch the other tasks.
    """
    _log_ignored_options(settings)
    coordination.check_restored(strategy, settings.checkpoint_dir)
    try:
        session = sessions.session_with_worker_context(
            strategy,
            hooks=[*hooks, CoordinatedStopHook(strategy)],
            chief_only_hooks=chief_only_hooks,
            config=config,
            stop_grace_period_secs=stop_grace_period_secs,
            max_wait_secs=settings.max_wait_secs,
            **settings.of_strategy(),
        )
    except BaseException:
        for guard in guards:
            guard.stop()
        raise
    if coordination.peers(strategy):
        # After a failed collective op, all later ones of this process fail
        # (BaseCollectiveExecutor::StartAbort). And a session that is restored does not
        # have the values of the other trainers, which are some steps ahead.
        sessions.stop_recovering(
            session, lambda error: [guard.on_loss(error) for guard in guards]
        )
    for guard in guards:
        guard.belong_to(session)
    return session


def _steps_per_run(settings: SessionSettings) -> int | str:
    """Return how many steps a call may run; a strategy's run together only if asked."""
    chosen = settings.options.steps_per_run
    return 1 if chosen == "auto" and tf.distribute.has_strategy() else chosen


def _log_ignored_options(settings: SessionSettings) -> None:
    """Log the options that have no effect in TensorFlow's own session."""
    chosen = settings.options
    if chosen.steps_per_run not in (1, "auto"):  # which needs no line
        _logger.warning(
            "steps_per_run=%s: steps are run one by one, because the step is that of a "
            "multi-worker strategy",
            chosen.steps_per_run,
        )
    if chosen.async_checkpoint and settings.checkpoint_dir:
        TRAINING_LOG.info(
            "Training waits for each checkpoint in %s, because a multi-worker strategy "
            "saves by TensorFlow's own hook.",
            settings.checkpoint_dir,
        )
