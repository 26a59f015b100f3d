"""What is saved of a session, how, and where: a snapshot, its writer, its folder."""

import os

from estimator_runtime.checkpoint.bundle_writer import BundleWriter
from estimator_runtime.checkpoint.series import Series
from estimator_runtime.checkpoint.snapshot import CannotSnapshot, Snapshot


class Target:
    """Where the checkpoints of one session go.

    Args:
        session: The session that holds the variables.
        saver: A built `tf.compat.v1.train.Saver` of its graph.
        save_path: Path of the checkpoints without step, such as "/ckpt/model.ckpt".

    Attributes:
        meta: Content of the .meta files, or None for none.

    Raises:
        CannotSnapshot: If only the Saver can save them.
    """

    def __init__(self, session, saver, save_path):
        if "://" in save_path or not os.path.dirname(save_path):
            raise CannotSnapshot("it is not a local folder")
        self.meta: bytes | None = None
        self._snapshot = Snapshot(session, saver)
        self._bundles = BundleWriter(self._snapshot.saved)
        self._series = Series(saver, save_path)

    def prepare(self, step):
        """Take a snapshot, between two steps.

        Args:
            step: The global step.

        Returns:
            (function that writes the checkpoint, as `Series.add` does, on any thread;
            size of its values in bytes).
        """
        values = self._snapshot.take()
        size = values.bytes

        def write():
            self._series.add(
                step,
                lambda prefix: self._bundles.write(prefix, values),
                size,
                self.meta,
            )

        return write, size


def exported_meta(session, saver):
    """Give the content of the .meta file that a Saver writes for a session's graph."""
    with session.graph.as_default():
        meta = saver.export_meta_graph()
    return meta.SerializeToString(deterministic=True)  # as graph_io.write_graph does
