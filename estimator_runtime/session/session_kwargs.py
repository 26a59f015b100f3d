"""The arguments of a training session that correspond to a RunConfig."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

# Import the module, not its names: a name imports the frozen package, and so
# `run_config`, which imports this module.
from estimator_runtime.compat import frozen


def training_session_kwargs(
    config: Any,
    scaffold: tf.compat.v1.train.Scaffold | None = None,
    hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
    chief_only_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
) -> dict[str, Any]:
    """Return the arguments of `MonitoredTrainingSession` that a RunConfig stands for.

    With them a training loop of your own checkpoints, logs and writes summaries
    as an Estimator with this config does:

        stop = tf.compat.v1.train.StopAtStepHook(last_step=10_000)
        arguments = config.training_session_kwargs(hooks=[stop])
        with MonitoredTrainingSession(**arguments) as s:
            while not s.should_stop():
                s.run(train_op)

    Args:
        config: The RunConfig; it has this function as a method.
        scaffold: `tf.compat.v1.train.Scaffold`, or None for the default one.
            If it has no saver, and the graph neither, one is added that keeps
            checkpoints as this config says.
        hooks: Hooks that run in every process.
        chief_only_hooks: Hooks that run in the chief only.

    Returns:
        A new dict: `master` (session target), `is_chief`, `checkpoint_dir`,
        `scaffold`, `hooks`, `chief_only_hooks`, `save_checkpoint_secs`
        (seconds, or None), `save_checkpoint_steps` (steps, or None),
        `save_summaries_steps` (steps, or None for no summaries), `config`
        (ConfigProto), `log_step_count_steps` (steps, or None), `max_wait_secs`
        (longest wait of a task that is not chief, in seconds) and `save_graph_def`.

    Raises:
        RuntimeError: If called in eager mode, outside of any graph.
    """
    return {
        "master": config.master,
        "is_chief": config.is_chief,
        "checkpoint_dir": config.model_dir,
        "scaffold": _with_saver(config, scaffold),
        "hooks": hooks,
        "chief_only_hooks": chief_only_hooks,
        "save_checkpoint_secs": config.save_checkpoints_secs or None,
        "save_checkpoint_steps": config.save_checkpoints_steps or None,
        "save_summaries_steps": config.save_summary_steps or None,
        "config": config.session_config or frozen.default_session_config(),
        "log_step_count_steps": config.log_step_count_steps,
        "max_wait_secs": config.session_creation_timeout_secs,
        "save_graph_def": config.checkpoint_save_graph_def,
    }


def _with_saver(
    config: Any, scaffold: tf.compat.v1.train.Scaffold | None
) -> tf.compat.v1.train.Scaffold | None:
    given = scaffold is not None and scaffold.saver is not None
    if given or tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS):
        return scaffold
    if tf.executing_eagerly():
        raise RuntimeError(
            "no graph to save; call this inside `with tf.Graph().as_default():`"
        )
    saver = tf.compat.v1.train.Saver(
        sharded=True,
        max_to_keep=config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        defer_build=True,  # the session builds it once all variables exist
        save_relative_paths=True,
    )
    return tf.compat.v1.train.Scaffold(saver=saver, copy_from_scaffold=scaffold)
