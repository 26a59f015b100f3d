"""The targets that a checkpoint hook saves to.

`Target` takes a snapshot and writes it while training continues. `SaverTarget` calls
the program's own Saver between two steps, where a snapshot is not possible.
"""

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.checkpoint import Checkpoint
from estimator_runtime.checkpoint.save import writer
from estimator_runtime.checkpoint.save.snapshot import (
    CannotSnapshot,
    Snapshot,
    size_of,
)
from estimator_runtime.checkpoint.store import series
from estimator_runtime.checkpoint.tensor_bundle.writer import BundleWriter
from estimator_runtime.config.paths import is_local
from estimator_runtime.tf_internals import savers

tf1 = tf.compat.v1


class Target:
    """A target that writes snapshots of one session.

    Args:
        session: The session that holds the variables.
        saver: A built `tf.compat.v1.train.Saver` of its graph.
        save_path: Path of the checkpoints without step, such as "/ckpt/model.ckpt".

    Raises:
        CannotSnapshot: If only the Saver can save the variables.
    """

    def __init__(
        self, session: tf.compat.v1.Session, saver: Any, save_path: str
    ) -> None:
        if not is_local(save_path) or not os.path.dirname(save_path):
            raise CannotSnapshot("it is not a local folder")
        self._snapshot = Snapshot(session, saver)
        self._bundles = BundleWriter(self._snapshot.saved)
        self._series = series.Series(saver, save_path)

    def prepare(self, step: int, meta: bytes | None) -> tuple[Callable[[], None], int]:
        """Take a snapshot, between two steps.

        Args:
            step: The global step.
            meta: Content of the .meta file, or None for no such file.

        Returns:
            (function that writes the checkpoint as `Series.add` does, on any thread;
            size of the values in bytes).
        """
        arrays = self._snapshot.take()
        size = sum(map(size_of, arrays))

        def write_files(prefix: str) -> None:
            self._bundles.write(prefix, arrays)

        def write() -> None:
            self._series.add(step, write_files, size, meta)

        return write, size


def exported_meta(session: tf.compat.v1.Session, saver: Any) -> bytes:
    """Return the content of the .meta file that a Saver writes for a graph."""
    with session.graph.as_default():
        meta = saver.export_meta_graph()
    return meta.SerializeToString(deterministic=True)  # as graph_io.write_graph does


class SaverTarget:
    """A target that saves with the Saver of one session.

    TensorFlow's own Saver only writes the files. When they are on the disk, the runtime
    names them in the state file and deletes old checkpoints, as a `Series` does. The
    Saver does all of this itself if its class is the program's own, if it writes the
    old format, or if the folder is not local.

    Args:
        session: The session that holds the variables.
        saver: A built `tf.compat.v1.train.Saver` of its graph, or a Saver of the
            program's own class.
        save_path: Path of the checkpoints without step, such as "/ckpt/model.ckpt".
        has_graph: Whether the graph is written beside each checkpoint.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        saver: Any,
        save_path: str,
        has_graph: bool,
    ) -> None:
        self._session, self._saver = session, saver
        self._save_path, self._has_graph = save_path, has_graph
        is_in_folder = is_local(save_path) and bool(os.path.dirname(save_path))
        # A Saver of no variables is built without a definition.
        is_known = isinstance(saver, tf1.train.Saver) and saver.saver_def is not None
        self._series = (
            series.Series(saver, save_path) if is_in_folder and is_known else None
        )
        self._is_stock = savers.obstacle(saver) is None

    def save(self, step: int) -> int:
        """Save a step; return the size of its files in bytes, 0 if it is not known.

        Raises:
            CheckpointError: If the checkpoint cannot be written to its disk. The other
                checkpoints are unchanged.
            tf.errors.OpError: If a task of the cluster is lost during the save.
        """
        # Before the lock is taken, because the writes that this thread has submitted
        # need it too.
        writer.wait_before_save(self._save_path)
        if self._series is None:
            self._save(step)
            return 0
        if self._is_stock:
            prefix = self._series.add_saved(
                step, lambda: self._save(step, write_state=False)
            )
        else:
            with self._series.removed_if_failed(step):
                prefix = self._save(step)
                if not prefix or not is_local(prefix):
                    return 0
                series.sync(prefix)
        return Checkpoint.at(prefix).bytes

    def _save(self, step: int, **arguments: Any) -> Any:
        """Call the Saver; return what it returns, usually the path."""
        return self._saver.save(
            self._session,
            self._save_path,
            global_step=step,
            write_meta_graph=self._has_graph,
            **arguments,
        )
