"""The runtime's MonitoredTrainingSession: what every Estimator trains through."""

import os

import tensorflow as tf
from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.training import monitored_session
from tensorflow.python.training.sync_replicas_optimizer import (
    _SyncReplicasOptimizerHook,
)

from estimator_runtime import dashboard, options, peers, reporting, session_checks
from estimator_runtime.checkpoint import agreed_restore, interval
from estimator_runtime.checkpoint.hook import asynchronous
from estimator_runtime.compat import seam
from estimator_runtime.creators import WorkerCreator, chief_creator
from estimator_runtime.hooks import display, silent_peers
from estimator_runtime.hooks.agreed_stop import AgreedStopHook
from estimator_runtime.hooks.progress import ProgressHook
from estimator_runtime.hooks.step_rate import StepRateHook, TaskRateHook
from estimator_runtime.hooks.watched import WatchedHook
from estimator_runtime.loop.monitored import LoopSession
from estimator_runtime.role import TaskType
from estimator_runtime.session_checks import is_on

_USE_DEFAULT = object()
_SYNCHRONOUS_GRACE_SECS = 1
_train = tf.compat.v1.train


@seam.replaces(
    "tensorflow.python.training.training", monitored_session.MonitoredTrainingSession
)
def MonitoredTrainingSession(
    master="",
    is_chief=True,
    checkpoint_dir=None,
    scaffold=None,
    hooks=None,
    chief_only_hooks=None,
    save_checkpoint_secs=_USE_DEFAULT,
    save_summaries_steps=_USE_DEFAULT,
    save_summaries_secs=_USE_DEFAULT,
    config=None,
    stop_grace_period_secs=120,
    log_step_count_steps=100,
    max_wait_secs=7200,
    save_checkpoint_steps=_USE_DEFAULT,
    summary_dir=None,
    save_graph_def=True,
):
    """Make a session that initializes or restores a model and trains it.

    Signature, defaults and meaning are those of
    `tf.compat.v1.train.MonitoredTrainingSession`; but checkpoints are written while
    training goes on. It works on the default graph: build the model and call it inside
    `with tf.Graph().as_default()`, with eager execution on or off.

    Args:
        master: Session target: "" for this process, or "grpc://host:port".
        is_chief: Whether this task initializes or restores the variables, saves
            checkpoints and writes summaries. The others wait for it.
        checkpoint_dir: Folder to restore from and save to, as str or `os.PathLike`;
            None does neither.
        scaffold: `tf.compat.v1.train.Scaffold`, or None for a default one.
        hooks: Hooks that run in every task.
        chief_only_hooks: Hooks that run in the chief, before the others.
        save_checkpoint_secs: Seconds between checkpoints; 600 if neither interval
            is given. None or 0 turns it off.
        save_summaries_steps: Steps between summaries; 100 if neither interval is
            given. None or 0 turns it off.
        save_summaries_secs: Seconds between summaries; off by default.
        config: `tf.compat.v1.ConfigProto` of the session.
        stop_grace_period_secs: Seconds that threads get to stop at close.
        log_step_count_steps: Steps between steps/sec log lines; None or 0 for none.
            A task that is not chief logs the rate of its own steps.
        max_wait_secs: Longest wait for other tasks, in seconds: for a ps, and in a
            task that is not chief for the chief.
        save_checkpoint_steps: Steps between checkpoints; off by default.
        summary_dir: Folder for summaries; None takes `checkpoint_dir`.
        save_graph_def: Whether the graph is written beside checkpoints.

    Returns:
        A `tf.compat.v1.train.MonitoredSession`.

    Raises:
        CheckpointError: If the folder's checkpoints cannot be used, or are another
            model's; by `run` and at the end, if one cannot be written.
        ConfigError: If the chief cannot write a folder that it is to write to.
        ConfigTypeError: If an interval is no number.
        RuntimeError: If called in eager mode, outside of any graph.
        ValueError: If both intervals of checkpoints, or of summaries, are given.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "MonitoredTrainingSession trains a graph, and eager execution is on here; "
            "build the model and the session inside `with tf.Graph().as_default():`"
        )
    # Either may be an iterator, which gives its hooks once.
    hooks, chief_only_hooks = list(hooks or ()), list(chief_only_hooks or ())
    save_checkpoint_secs, save_checkpoint_steps = _interval(
        save_checkpoint_secs,
        save_checkpoint_steps,
        default=(interval.for_overhead(options.current().checkpoint_overhead), None),
    )
    save_summaries_steps, save_summaries_secs = _interval(
        save_summaries_steps, save_summaries_secs, default=(100, None)
    )
    # TensorFlow's own hooks take no path objects.
    checkpoint_dir = checkpoint_dir and os.fspath(checkpoint_dir)
    summary_dir = summary_dir and os.fspath(summary_dir)
    scaffold = scaffold or _train.Scaffold()
    common = {
        "scaffold": scaffold,
        "checkpoint_dir": checkpoint_dir,
        "save_checkpoint_secs": save_checkpoint_secs,
        "save_checkpoint_steps": save_checkpoint_steps,
        "save_summaries_steps": save_summaries_steps,
        "save_summaries_secs": save_summaries_secs,
        "log_step_count_steps": log_step_count_steps,
        "summary_dir": summary_dir,
        "save_graph_def": save_graph_def,
    }
    session_checks.check_intervals(common)
    if is_chief:
        session_checks.check_folders(common, [*hooks, *chief_only_hooks])
        dashboard.show(summary_dir or checkpoint_dir)
    batches_per_step = 1
    for hook in hooks:
        if not isinstance(hook, _SyncReplicasOptimizerHook):
            continue
        reporting.send(synchronous=True)
        batches_per_step = hook._sync_optimizer._replicas_to_aggregate
        # The chief has a thread that waits for the next gradients, and so never ends.
        stop_grace_period_secs = min(stop_grace_period_secs, _SYNCHRONOUS_GRACE_SECS)
    folder = reporting.absolute(os.fsdecode(checkpoint_dir)) if checkpoint_dir else ""
    if is_chief and folder:
        # For programs without train_and_evaluate, which reports it first.
        reporting.send(checkpoint_dir=folder)
    if reporting.is_on():
        # After those that it asks.
        hooks.append(ProgressHook([*chief_only_hooks, *hooks], folder))
    # Before all others: its end has to come before that of those that save.
    guards = silent_peers.hooks_of(master, max_wait_secs, checkpoint_dir)
    coordinated = distribute_coordinator_context.get_current_worker_context()
    if coordinated:
        session_checks.say_what_has_no_effect(options.current(), checkpoint_dir)
        interval.fix([*hooks, *chief_only_hooks])
        common["save_checkpoint_secs"] = interval.fixed(save_checkpoint_secs)
        agreed_restore.check(coordinated, checkpoint_dir)
        # Under a multi-worker strategy it, not the arguments, knows who saves and logs.
        training = monitored_session._create_monitored_session_with_worker_context(
            coordinated,
            hooks=[*guards, *hooks, AgreedStopHook(coordinated)],
            chief_only_hooks=chief_only_hooks,
            config=config,
            stop_grace_period_secs=stop_grace_period_secs,
            max_wait_secs=max_wait_secs,
            **common,
        )
        for guard in guards:
            guard.belong_to(training)
        return training
    if is_chief:
        creator = chief_creator(
            scaffold,
            master=master,
            config=config,
            checkpoint_dir=checkpoint_dir,
            max_wait_secs=max_wait_secs,
        )
        own_hooks = _chief_hooks(**common, batches_per_step=batches_per_step)
        chief_hooks = [*chief_only_hooks, *own_hooks]
        all_hooks = asynchronous([*guards, *chief_hooks, *hooks], creator)
        # A launcher shows how far all tasks are.
        mode = "none" if reporting.is_on() else options.current().progress
        make_display = display.choose(mode)
        if make_display:
            all_hooks.append(WatchedHook(all_hooks[:], checkpoint_dir, make_display))
    else:
        creator = WorkerCreator(
            scaffold, master=master, config=config, max_wait_secs=max_wait_secs
        )
        all_hooks = [*guards, *hooks]
    if is_on(log_step_count_steps):
        folder = summary_dir or checkpoint_dir
        all_hooks += _task_hooks(log_step_count_steps, is_chief, master, folder)
    return LoopSession(
        session_creator=creator,
        hooks=all_hooks,
        stop_grace_period_secs=stop_grace_period_secs,
    )


def _interval(first, second, default):
    """Resolve two ways to give an interval: both left out means `default`."""
    if first is _USE_DEFAULT and second is _USE_DEFAULT:
        return default
    return tuple(None if v is _USE_DEFAULT else v for v in (first, second))


def _chief_hooks(
    *,
    scaffold,
    checkpoint_dir,
    save_checkpoint_secs,
    save_checkpoint_steps,
    save_summaries_steps,
    save_summaries_secs,
    log_step_count_steps,
    summary_dir,
    save_graph_def,
    batches_per_step,
):
    """Give the hooks that log, summarize and save, in TensorFlow's order."""
    summary_dir = summary_dir or checkpoint_dir
    hooks = []
    if summary_dir and is_on(log_step_count_steps):
        hooks.append(
            StepRateHook(
                output_dir=summary_dir,
                every_n_steps=log_step_count_steps,
                batches_per_step=batches_per_step,
            )
        )
    if summary_dir and (is_on(save_summaries_steps) or is_on(save_summaries_secs)):
        hooks.append(
            _train.SummarySaverHook(
                scaffold=scaffold,
                save_steps=save_summaries_steps,
                save_secs=save_summaries_secs,
                output_dir=summary_dir,
            )
        )
    if checkpoint_dir and (is_on(save_checkpoint_secs) or is_on(save_checkpoint_steps)):
        hooks.append(
            _train.CheckpointSaverHook(
                checkpoint_dir,
                save_secs=save_checkpoint_secs,
                save_steps=save_checkpoint_steps,
                scaffold=scaffold,
                save_graph_def=save_graph_def,
            )
        )
    return hooks


def _task_hooks(every_n_steps, is_chief, master, summary_dir):
    """Give the hook that tells a task's own rate: in a chief only beside others."""
    task = peers.this_task() if master else None
    cluster = task.cluster if task else {}
    if not is_chief:
        # Not the chief's folder: TensorBoard would take two writers for one run.
        run = f"{task.task_type}-{task.task_index}" if task and task.task_type else None
        return [TaskRateHook(every_n_steps, summary_dir if run else None, run)]
    trainers = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
    if len(peers.tasks(cluster, trainers)) < 2:
        return []
    return [TaskRateHook(every_n_steps, summary_dir)]
