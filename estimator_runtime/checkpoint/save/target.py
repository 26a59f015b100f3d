"""Where a Saver writes by itself, while training waits: there can be no snapshot."""

import os

import tensorflow as tf

from estimator_runtime.checkpoint import files, series, writer
from estimator_runtime.checkpoint.save_ops import saved_by
from estimator_runtime.checkpoint.unwritten import OF_DISKS
from estimator_runtime.errors import CheckpointError

tf1 = tf.compat.v1


class SaverTarget:
    """Where the checkpoints of one session go that only its Saver can write.

    TensorFlow's own Saver writes the files only: when they are on the disk, they are
    named in the state file and old ones deleted, as a `Series` does it. A Saver of the
    program's own, of the old format, or of a folder that is not local does all of it.

    Args:
        session: The session that holds the variables.
        saver: A built `tf.compat.v1.train.Saver` of its graph.
        save_path: Path of the checkpoints without step, such as "/ckpt/model.ckpt".
        has_graph: Whether the graph is written beside each.
    """

    def __init__(self, session, saver, save_path, has_graph):
        self._session, self._saver = session, saver
        self._save_path, self._has_graph = save_path, has_graph
        is_local = "://" not in save_path and bool(os.path.dirname(save_path))
        # One for no variables is built without a definition.
        is_known = isinstance(saver, tf1.train.Saver) and saver.saver_def is not None
        self._series = (
            series.Series(saver, save_path) if is_local and is_known else None
        )
        self._is_stock = type(saver) is tf1.train.Saver and "save" not in vars(saver)
        self._is_stock &= is_known and not saver._is_empty
        self._is_stock &= is_known and saver._write_version == tf1.train.SaverDef.V2

    def save(self, step):
        """Save a step; give the size of its files in bytes, 0 if that is not known.

        Args:
            step: The global step.

        Raises:
            CheckpointError: If its disk does not take it; the others are as they were.
            tf.errors.OpError: If a task of the cluster is lost meanwhile.
        """
        # Before the turn is taken, which what this thread has submitted needs too.
        writer.wait_before_save(self._save_path)
        if self._series is None:
            self._save(step)
            return 0
        if not self._is_stock:
            return self._save_by_saver(step, self._series)
        prefix = self._series.add_saved(
            step, lambda: self._save(step, write_state=False), self._needed_bytes()
        )
        return files.at(prefix).bytes

    def _save(self, step, **arguments):
        return self._saver.save(
            self._session,
            self._save_path,
            global_step=step,
            write_meta_graph=self._has_graph,
            **arguments,
        )

    def _save_by_saver(self, step, to):
        try:
            prefix = self._save(step)
            if not prefix or "://" in prefix:
                return 0
            series.sync(prefix)
        except CheckpointError:
            raise
        except (OSError, *OF_DISKS) as error:
            raise to.failed(step, error, self._needed_bytes()) from error
        return files.at(prefix).bytes

    def _needed_bytes(self):
        """Give the size of the values, or None if it is not known before."""
        try:
            saved = saved_by(self._saver, self._session.graph) or ()
        except (AttributeError, KeyError, ValueError):  # not built as TensorFlow's are
            return None
        sizes = [
            (each.tensor.shape.num_elements(), each.tensor.dtype.base_dtype.size)
            for each in saved
        ]
        if not sizes or not all(count is not None and size for count, size in sizes):
            return None
        return sum(count * size for count, size in sizes)
