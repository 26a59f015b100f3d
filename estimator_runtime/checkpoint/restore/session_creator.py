"""The session of a task that restores: from the newest checkpoint that is good."""

import errno
import os

import tensorflow as tf
from tensorflow.python.training import monitored_session

from estimator_runtime.checkpoint import checksums, recovery, turns
from estimator_runtime.checkpoint.reading import UnreadableError
from estimator_runtime.checkpoint.save_ops import saved_by
from estimator_runtime.errors import CheckpointError

_MOST_NAMED = 3
_RESTORE_ATTEMPTS = 3  # of a checkpoint that is good whenever it is looked at
_RESTORE_OPS = ("Restore", "RestoreSlice", "RestoreV2")
# What TensorFlow makes of a disk or file server that answers a read with an error:
# `ErrnoToCode` in its platform/error.cc.
_READ_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.OutOfRangeError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnknownError,
)
# In a cluster they are a lost task's, too: TensorFlow's sessions are then made again.
_LOCAL_READ_ERRORS = (tf.errors.AbortedError, tf.errors.UnavailableError)


# Programs that begin anew where no checkpoint fits catch TensorFlow's own errors.
class MissingVariablesError(tf.errors.NotFoundError, CheckpointError):
    """A checkpoint has not all variables of the model."""


class OtherShapesError(tf.errors.InvalidArgumentError, CheckpointError):
    """A checkpoint has variables of the model in other shapes."""


class VerifiedSessionCreator(monitored_session.ChiefSessionCreator):
    """TensorFlow's ChiefSessionCreator, which checks what it restores.

    Index, presence and size of the files are checked before, the checksum of each
    value as it is restored. What is damaged is set aside, and the newest good
    checkpoint is restored. Folders on remote storage are left to TensorFlow.

    Attributes:
        restored_prefix: Path of the checkpoint that the last session was restored
            from, without suffix; None if from none, or if that is not known.
    """

    restored_prefix: str | None = None

    @property
    def checkpoint_dir(self) -> str | None:
        """The folder to restore from; None without one."""
        return os.fsdecode(self._checkpoint_dir) if self._checkpoint_dir else None

    @property
    def saver(self):
        """The Saver that restores; None before the first session, or without one."""
        return self._scaffold.saver

    def create_session(self):
        """Make a session, with restored or initialized variables.

        Raises:
            CheckpointError: If the folder has checkpoints, but none can be used, or the
                newest cannot be read now.
            MissingVariablesError, OtherShapesError: If they are another model's; they
                are CheckpointErrors, too.
        """
        self.restored_prefix = None
        folder = self._checkpoint_dir and os.fsdecode(self._checkpoint_dir)
        if not folder or "://" in folder:
            return super().create_session()
        attempts_left = _RESTORE_ATTEMPTS
        while True:
            attempts_left -= 1
            with turns.turn():
                checkpoint = recovery.recover(folder)
            try:
                session = super().create_session()
                if checkpoint is not None and self.saver is not None:
                    self._check_shapes(session, checkpoint.prefix)
                    self.restored_prefix = checkpoint.prefix
                return session
            except (*_READ_ERRORS, *_LOCAL_READ_ERRORS) as error:
                # Its message names no file, and what else is read at the start, such as
                # a vocabulary, may be what is damaged.
                is_of_restore = self._is_of_restore(error)
                is_damage = isinstance(error, tf.errors.DataLossError)
                if checkpoint is None or not (is_of_restore or is_damage):
                    raise
                problem = _problem(checkpoint.prefix)
                if problem:
                    recovery.set_aside_latest(folder, problem)
                elif not is_of_restore or attempts_left <= 0:
                    raise
            except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
                found = checkpoint and differences(
                    self._scaffold.saver, checkpoint.prefix
                )
                if not found:
                    raise
                is_missing = isinstance(error, tf.errors.NotFoundError)
                kind = MissingVariablesError if is_missing else OtherShapesError
                raise _mismatch(kind, checkpoint.prefix, found) from error

    def _is_of_restore(self, error):
        """Return whether an op that restores could not read its file."""
        is_its = error.op is not None and error.op.type in _RESTORE_OPS
        return is_its and not (self._master and isinstance(error, _LOCAL_READ_ERRORS))

    def _check_shapes(self, session, prefix):
        """Refuse values of other shapes; TensorFlow gives them to variables too."""
        # One that reshapes, or a class of the program's, may know what it does.
        if type(self.saver) is tf.compat.v1.train.Saver and not self.saver._reshape:
            found = differences(self.saver, prefix)
            if found:
                session.close()
                raise _mismatch(OtherShapesError, prefix, found)


def differences(saver, prefix):
    """Say what a model has that a checkpoint has not, or has in another shape.

    Args:
        saver: The Saver that has been asked to restore, in the default graph.
        prefix: Path of the checkpoint, without suffix.

    Returns:
        List of texts, one for each variable, sorted. The shapes of parts of variables,
        and of those that may have any, are left out.
    """
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    wanted = saved_by(saver, tf.compat.v1.get_default_graph()) or ()
    found = set()
    for each in wanted:
        if each.name not in shapes:
            found.add(f"it has no {each.name!r}")
        elif each.slice_spec or each.shape is None:
            continue
        elif each.shape != shapes[each.name]:
            found.add(
                f"{each.name!r} has shape {shapes[each.name]} there, {each.shape} here"
            )
    return sorted(found)


def _mismatch(kind, prefix, found):
    # The first words are TensorFlow's: programs look for them.
    return kind(
        None,
        None,
        "Restoring from checkpoint failed: there is a mismatch between this model and "
        f"that of {prefix}: {_listed(found)}; give the model that it was saved from, "
        "or another folder (all files are as they were)",
    )


def _problem(prefix):
    """Return why a checkpoint is damaged; None if it is not.

    Raises:
        UnreadableError: If a file of it cannot be read now.
    """
    found = checksums.problem(prefix)
    if found is not None:
        return found
    try:  # of another format than those are for
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except tf.errors.DataLossError as error:
        return "TensorFlow cannot read it: " + str(error.message).partition("\n")[0]
    except tf.errors.OpError as error:
        reason = str(error.message).partition("\n")[0]
        raise UnreadableError(OSError(errno.EIO, reason, prefix)) from error
    return None


def _listed(texts):
    more = len(texts) - _MOST_NAMED
    shown = "; ".join(texts[:_MOST_NAMED])
    return f"{shown}; and {more} more" if more > 0 else shown
