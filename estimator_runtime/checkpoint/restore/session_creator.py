"""Session creator that restores the newest good checkpoint."""

import errno
import os
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.save.snapshot import saved_by
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.tensor_bundle import checksums
from estimator_runtime.checkpoint.tensor_bundle.reading import UnreadableError
from estimator_runtime.config.paths import is_local
from estimator_runtime.errors import CheckpointError
from estimator_runtime.tf_internals import op_kinds

_MOST_NAMED = 3
_RESTORE_ATTEMPTS = 3  # for a checkpoint that each check finds to be good
# Errors that TensorFlow raises if a disk or file server fails to read: `ErrnoToCode` in
# its platform/error.cc.
_READ_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.OutOfRangeError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnknownError,
)
# In a cluster, a lost task causes these too, and TensorFlow then creates a new session.
_LOCAL_READ_ERRORS = (tf.errors.AbortedError, tf.errors.UnavailableError)


# Some programs catch TensorFlow's errors and start over if no checkpoint fits.
class MissingVariablesError(tf.errors.NotFoundError, CheckpointError):
    """A checkpoint lacks variables of the model."""


class OtherShapesError(tf.errors.InvalidArgumentError, CheckpointError):
    """A checkpoint has variables with other shapes than the model."""


class VerifiedSessionCreator(tf.compat.v1.train.ChiefSessionCreator):
    """A ChiefSessionCreator that checks what it restores.

    The index and the presence and size of the files are checked before the restore, and
    the checksum of each value during it. A damaged checkpoint is set aside, and the
    newest good one is restored. TensorFlow restores from remote storage by itself.

    Attributes:
        restored_prefix: Path, without suffix, of the checkpoint that the last session
            was restored from. None if there was none, or if it is unknown.
    """

    restored_prefix: str | None = None

    @property
    def checkpoint_dir(self) -> str | None:
        """The folder to restore from, or None."""
        return os.fsdecode(self._checkpoint_dir) if self._checkpoint_dir else None

    @property
    def saver(self) -> Any:
        """The Saver that restores, or None, as before the first session."""
        return self._scaffold.saver

    def create_session(self) -> tf.compat.v1.Session:
        """Return a new session with restored or initialized variables.

        Raises:
            CheckpointError: If the folder has checkpoints, but none can be used, or the
                newest cannot be read now.
            MissingVariablesError, OtherShapesError: If the checkpoint belongs to
                another model. Both are subclasses of CheckpointError.
        """
        self.restored_prefix = None
        folder = self._checkpoint_dir and os.fsdecode(self._checkpoint_dir)
        if not folder or not is_local(folder):
            return super().create_session()
        attempts_left = _RESTORE_ATTEMPTS
        while True:
            attempts_left -= 1
            with locks.write_lock():
                checkpoint = recovery.recover(folder)
            if checkpoint is not None:
                reporting.progress(doing="restoring")
            try:
                session = super().create_session()
                if checkpoint is not None and self.saver is not None:
                    self._check_shapes(session, checkpoint.prefix)
                    self.restored_prefix = checkpoint.prefix
                return session
            except (*_READ_ERRORS, *_LOCAL_READ_ERRORS) as error:
                if checkpoint is None or not self._may_try_again(
                    error, folder, checkpoint.prefix, attempts_left
                ):
                    raise
            except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
                if checkpoint is None:
                    raise
                found = differences(self._scaffold.saver, checkpoint.prefix)
                if not found:
                    raise
                is_missing = isinstance(error, tf.errors.NotFoundError)
                kind = MissingVariablesError if is_missing else OtherShapesError
                raise _mismatch(kind, checkpoint.prefix, found) from error

    def _may_try_again(
        self, error: tf.errors.OpError, folder: str, prefix: str, attempts_left: int
    ) -> bool:
        """Set aside a damaged checkpoint, and return whether to restore again.

        The message names no file. Another file that is read at the start may be damaged
        instead, such as a vocabulary.
        """
        is_of_restore = self._is_of_restore(error)
        if not (is_of_restore or isinstance(error, tf.errors.DataLossError)):
            return False
        if problem := _problem(prefix):
            recovery.set_aside_latest(folder, problem)
            return True
        return is_of_restore and attempts_left > 0

    def _is_of_restore(self, error: tf.errors.OpError) -> bool:
        """Return whether an error means that a restore op could not read its file."""
        is_its = error.op is not None and op_kinds.of(error.op.type).restores
        return is_its and not (self._master and isinstance(error, _LOCAL_READ_ERRORS))

    def _check_shapes(self, session: tf.compat.v1.Session, prefix: str) -> None:
        """Close the session and raise if TensorFlow has assigned other shapes.

        Raises:
            OtherShapesError: If the shapes of a variable differ.
        """
        # A Saver that reshapes, or of a class of the program, may do so on purpose.
        if type(self.saver) is tf.compat.v1.train.Saver and not self.saver._reshape:
            found = differences(self.saver, prefix)
            if found:
                session.close()
                raise _mismatch(OtherShapesError, prefix, found)


def differences(saver: tf.compat.v1.train.Saver, prefix: str) -> list[str]:
    """Return which variables of a model a checkpoint lacks or has with another shape.

    Args:
        saver: The Saver that is to restore, in the default graph.
        prefix: Path of the checkpoint, without suffix.

    Returns:
        A description of each such variable, sorted: first those that are trained,
        then those of the optimizer and others. The shapes of partitioned variables and
        of variables without a fixed shape are not compared.
    """
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    wanted = saved_by(saver, tf.compat.v1.get_default_graph()) or ()
    found: dict[str, str] = {}
    for each in wanted:
        if each.name not in shapes:
            found[each.name] = f"the checkpoint has no {each.name!r}"
        elif each.slice_spec or each.shape is None:
            continue
        elif each.shape != shapes[each.name]:
            found[each.name] = (
                f"{each.name!r} has shape {shapes[each.name]} there, {each.shape} here"
            )
    trained = {
        # A part of a partitioned variable is saved under the name of the whole.
        re.sub(r"/part_\d+\Z", "", variable.op.name)
        for variable in tf.compat.v1.trainable_variables()
    }
    return [found[name] for name in sorted(found, key=lambda n: (n not in trained, n))]


def _mismatch(
    kind: type[MissingVariablesError] | type[OtherShapesError],
    prefix: str,
    found: Sequence[str],
) -> CheckpointError:
    # TensorFlow's messages begin with the same words, and programs search for them.
    return kind(
        None,
        None,
        "Restoring from checkpoint failed: there is a mismatch between this model and "
        f"that of {prefix}: {_listed(found)}; give the model that it was saved from, "
        "or another folder (no file was changed)",
    )


def _problem(prefix: str) -> str | None:
    """Return why a checkpoint is damaged, or None if it is not.

    Raises:
        UnreadableError: If one of its files cannot be read now.
    """
    found = checksums.problem(prefix)
    if found is not None:
        return found
    try:  # for formats that `checksums` does not check
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except tf.errors.DataLossError as error:
        return "TensorFlow cannot read it: " + str(error.message).partition("\n")[0]
    except tf.errors.OpError as error:
        reason = str(error.message).partition("\n")[0]
        raise UnreadableError(OSError(errno.EIO, reason, prefix)) from error
    return None


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_NAMED
    shown = "; ".join(texts[:_MOST_NAMED])
    return f"{shown}; and {more} more" if more > 0 else shown
