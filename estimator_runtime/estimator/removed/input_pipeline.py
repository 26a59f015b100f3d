"""`tf.data.experimental.CheckpointInputPipelineHook`, which TensorFlow 2.16 removed.

Programs pass it to `Estimator.train`, so that a resumed training does not read its data
from the start again. Its files, their names and the steps at which they are saved are
those of TensorFlow 2.15, so each of the two resumes what the other has saved.
"""

import functools
import importlib
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops

from estimator_runtime.estimator.removed import api

_Policy = tf.data.experimental.ExternalStatePolicy
_PolicyOrName: TypeAlias = str | tf.data.experimental.ExternalStatePolicy | None
_POLICIES = {each.name.lower(): each for each in _Policy}


def provide() -> None:
    """Add the hook to TensorFlow's modules under each of its former names."""
    own = {"CheckpointInputPipelineHook": CheckpointInputPipelineHook}
    for name in ("", ".ops.iterator_ops"):
        package = importlib.import_module(f"tensorflow.python.data.experimental{name}")
        vars(package).update(own)
    api.add("data.experimental", own)


class CheckpointInputPipelineHook(tf.compat.v1.train.SessionRunHook):
    """A hook that saves and restores the position of the input pipeline.

    It saves the iterators of the graph as input.ckpt-STEP, beside the checkpoints of
    the model and as often as these. If there are several workers, each saves its own
    iterators, as input_TYPE_INDEX.ckpt-STEP. A session restores the newest ones at its
    first step.
    The checkpoints of the model do not contain the iterators, so evaluation reads its
    input from the start.

    Args:
        estimator: The Estimator that you train with this hook.
        external_state_policy: How to treat state that an input keeps outside of its
            iterator, such as that of a random generator. "fail" (the default) raises an
            error, "warn" drops the state and logs a warning, "ignore" drops it. A
            `tf.data.experimental.ExternalStatePolicy` is accepted, too.

    Raises:
        ValueError: If the policy is none of these, or if the Estimator's config has no
            interval between checkpoints.
    """

    def __init__(
        self,
        estimator: Any,
        external_state_policy: _PolicyOrName = None,
    ) -> None:
        self._policy = _policy(external_state_policy)
        config = estimator._config  # the property returns a copy
        name = "input"
        if config.num_worker_replicas > 1:
            name += f"_{config.task_type}_{config.task_id}"
        self._state_file = f"checkpoint_{name}"
        # This class does not derive from CheckpointSaverHook, because an Estimator that
        # is given one does not save the model itself.
        self._saves = tf.compat.v1.train.CheckpointSaverHook(
            estimator.model_dir,
            save_secs=config.save_checkpoints_secs,
            save_steps=config.save_checkpoints_steps,
            checkpoint_basename=f"{name}.ckpt",
        )
        self._is_new_session = True

    def begin(self) -> None:
        """Add ops that save and restore the iterators to the graph."""
        resources = tf.compat.v1.get_collection(iterator_ops.GLOBAL_ITERATORS)
        saveables = [
            iterator_ops._IteratorSaveable(
                each, each.name, external_state_policy=self._policy
            )
            for each in resources
        ]
        saver = tf.compat.v1.train.Saver(saveables, sharded=True)
        # The state file `checkpoint` is that of the model.
        saver.save = functools.partial(saver.save, latest_filename=self._state_file)
        self._saves._saver = saver
        self._saves.begin()

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Record that the session, and so its iterators, are new."""
        self._is_new_session = True

    def before_run(
        self, run_context: tf.compat.v1.train.SessionRunContext
    ) -> tf.compat.v1.train.SessionRunArgs | None:
        """Restore the iterators of a new session, or save them for the first time."""
        # `after_create_session` is too early, because the hook that initializes the
        # iterators may be called after this one there.
        if self._is_new_session:
            self._restore_or_save(run_context.session)
            self._is_new_session = False
        return self._saves.before_run(run_context)

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Save the iterators when they are due."""
        self._saves.after_run(run_context, run_values)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Save the iterators after the last step."""
        self._saves.end(session)

    def _restore_or_save(self, session: tf.compat.v1.Session) -> None:
        saves = self._saves
        newest = tf.train.latest_checkpoint(saves._checkpoint_dir, self._state_file)
        if newest:
            saves._saver.restore(session, newest)
            return
        step = session.run(saves._global_step_tensor)
        saves._save(session, step)
        saves._timer.update_last_triggered_step(step)


def _policy(given: _PolicyOrName) -> tf.data.experimental.ExternalStatePolicy:
    """Return the policy of this name, or "fail" for None."""
    if isinstance(given, _Policy):
        return given
    policy = _POLICIES.get("fail" if given is None else given)
    if policy is None:
        raise ValueError(
            f"CheckpointInputPipelineHook: external_state_policy is {given!r}; use "
            f"{', '.join(map(repr, sorted(_POLICIES)))}"
        )
    return policy
