"""Writes values into the files of a checkpoint, byte for byte those of a Saver.

TensorFlow's own save op takes several times the processor time: it writes through the
cache of the file system, and its checksums are slower.
"""

import functools

import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from estimator_runtime.checkpoint import bundle
from estimator_runtime.checkpoint.data_file import DataFile
from estimator_runtime.checkpoint.save_op_writer import SaveOpWriter
from estimator_runtime.checkpoint.table import masked
from estimator_runtime.checkpoint.table_writer import table


class BundleWriter:
    """Writes checkpoints of the V2 format, as one shard, from arrays.

    Any thread may use it, while another one trains. Parts of partitioned variables and
    texts are left to TensorFlow's save op, and so are checkpoints that have some.

    Args:
        saved: List of `Saved`, one for each value.
    """

    def __init__(self, saved):
        self._saved = saved
        self._is_plain = len({each.name for each in saved}) == len(saved) and not any(
            each.slice_spec or each.tensor.dtype.base_dtype == tf.string
            for each in saved
        )

    def write(self, prefix, values):
        """Write the files of one checkpoint; they need not be on the disk yet.

        Args:
            prefix: Path without suffix; its folder exists.
            values: `Values` of what is saved.

        Raises:
            OSError: If they cannot be written.
            tf.errors.OpError: If TensorFlow cannot write them.
        """
        if not self._is_plain:
            self._save_op.write(prefix, values)
            return
        header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
        header.version.producer = 1
        entries = [(b"", header.SerializeToString())]
        with DataFile(bundle.shard_path(prefix, 0, 1)) as file:
            for saved, array in zip(self._saved, values.arrays, strict=True):
                entry = tensor_bundle_pb2.BundleEntryProto(
                    dtype=saved.tensor.dtype.base_dtype.as_datatype_enum,
                    offset=file.bytes,
                    size=array.nbytes,
                    crc32c=masked(file.write(array)),
                )
                entry.shape.SetInParent()  # is there also for a scalar
                for size in array.shape:
                    entry.shape.dim.add(size=size)
                entries.append((saved.name.encode(), entry.SerializeToString()))
        with open(f"{prefix}.index", "wb") as file:
            file.write(table(sorted(entries)))

    @functools.cached_property
    def _save_op(self):
        return SaveOpWriter(self._saved)
