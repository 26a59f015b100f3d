"""`tf.data.experimental.CheckpointInputPipelineHook`, which TensorFlow 2.16 removed.

Programs give it to `Estimator.train`, so that a training that is resumed does not read
its data from the start again. Its files, their names and the steps at which they are
saved are those of TensorFlow 2.15: what one of the two has saved, the other resumes.
"""

import importlib

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops

from estimator_runtime.compat import api

_Policy = tf.data.experimental.ExternalStatePolicy
_POLICIES = {each.name.lower(): each for each in _Policy}


def provide(_module):
    """Put the hook where it was, under each of its names."""
    own = {"CheckpointInputPipelineHook": CheckpointInputPipelineHook}
    for name in ("", ".ops.iterator_ops"):
        package = importlib.import_module(f"tensorflow.python.data.experimental{name}")
        vars(package).update(own)
    api.add("data.experimental", own)


class CheckpointInputPipelineHook(tf.compat.v1.train.SessionRunHook):
    """Saves how far the input has been read, and goes on from there.

    The iterators of the graph are saved beside the checkpoints of the model, as often
    as these, as input.ckpt-STEP; where there are several workers, each saves its own,
    as input_TYPE_INDEX.ckpt-STEP. At its first step a session restores the newest. The
    checkpoints of the model do not have the iterators: evaluation reads from the start.

    Args:
        estimator: The Estimator that trains with it.
        external_state_policy: What becomes of state that an input has outside of its
            iterator, such as that of a random generator: "fail" (the default) raises an
            error, "warn" leaves it out and logs that, "ignore" leaves it out.

    Raises:
        ValueError: If the policy is none of these, or the Estimator's config has no
            interval of checkpoints.
    """

    def __init__(self, estimator, external_state_policy=None):
        self._policy = _policy(external_state_policy)
        config = estimator._config  # the property would copy it
        name = "input"
        if config.num_worker_replicas > 1:
            name += f"_{config.task_type}_{config.task_id}"
        self._state_file = f"checkpoint_{name}"
        # Not its subclass: an Estimator that is given one saves no model of its own.
        self._saves = tf.compat.v1.train.CheckpointSaverHook(
            estimator.model_dir,
            save_secs=config.save_checkpoints_secs,
            save_steps=config.save_checkpoints_steps,
            checkpoint_basename=f"{name}.ckpt",
        )
        self._is_new_session = True

    def begin(self):
        """Add to the graph what saves and restores its iterators."""
        resources = tf.compat.v1.get_collection(iterator_ops.GLOBAL_ITERATORS)
        saveables = [
            iterator_ops._IteratorSaveable(
                each, each.name, external_state_policy=self._policy
            )
            for each in resources
        ]
        self._saves._saver = _Saver(saveables, self._state_file)
        self._saves.begin()

    def after_create_session(self, session, coord):
        """Notice that the iterators are new."""
        self._is_new_session = True

    def before_run(self, run_context):
        """Restore the iterators, or save them for the first time."""
        # Not when the session is made: the hook that initializes the iterators may be
        # called after this one then.
        if self._is_new_session:
            self._restore_or_save(run_context.session)
            self._is_new_session = False
        return self._saves.before_run(run_context)

    def after_run(self, run_context, run_values):
        """Save the iterators where it is time."""
        self._saves.after_run(run_context, run_values)

    def end(self, session):
        """Save the iterators as the last step leaves them."""
        self._saves.end(session)

    def _restore_or_save(self, session):
        saves = self._saves
        newest = tf.train.latest_checkpoint(saves._checkpoint_dir, self._state_file)
        if newest:
            saves._saver.restore(session, newest)
            return
        step = session.run(saves._global_step_tensor)
        saves._save(session, step)
        saves._timer.update_last_triggered_step(step)


class _Saver(tf.compat.v1.train.Saver):
    """A Saver that leaves the model's `checkpoint` file alone, and has its own."""

    def __init__(self, saveables, state_file):
        super().__init__(saveables, sharded=True)
        self._state_file = state_file

    def save(
        self, sess, save_path, global_step=None, latest_filename=None, *args, **kwargs
    ):
        return super().save(
            sess,
            save_path,
            global_step,
            latest_filename or self._state_file,
            *args,
            **kwargs,
        )


def _policy(given):
    if isinstance(given, _Policy):
        return given
    policy = _POLICIES.get("fail" if given is None else given)
    if policy is None:
        raise ValueError(
            f"CheckpointInputPipelineHook: external_state_policy is {given!r}; use "
            f"{', '.join(map(repr, sorted(_POLICIES)))}"
        )
    return policy
