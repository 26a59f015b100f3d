"""Writes values into the files of a checkpoint, byte for byte those of a Saver.

TensorFlow's own save op takes three to five times the processor time: it copies what it
writes once more, and its checksums are slower.
"""

import functools

import numpy as np
import tensorflow as tf
from crc32c import crc32c
from tensorflow.core.protobuf import tensor_bundle_pb2

from estimator_runtime.checkpoint import bundle
from estimator_runtime.checkpoint.save_op_writer import SaveOpWriter
from estimator_runtime.checkpoint.table import masked
from estimator_runtime.checkpoint.table_writer import table

_CHUNK_BYTES = 4 << 20  # small enough to be in the cache when it is written


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
        with open(bundle.shard_path(prefix, 0, 1), "wb", buffering=0) as file:
            for saved, array in zip(self._saved, values.arrays, strict=True):
                entry = tensor_bundle_pb2.BundleEntryProto(
                    dtype=saved.tensor.dtype.base_dtype.as_datatype_enum,
                    offset=file.tell(),
                    size=array.nbytes,
                    crc32c=masked(_write(file, array)),
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


def _write(file, array):
    """Write the bytes of an array to a file; give their crc32c."""
    # A view, unless the array has gaps. Not every type of TensorFlow's is one that a
    # memoryview knows.
    data = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    checksum = position = 0
    while position < len(data):
        chunk = data[position : position + _CHUNK_BYTES]
        checksum = crc32c(chunk, checksum)
        while chunk:  # a write may be cut short, as by a signal or a full disk
            written = file.write(chunk)
            chunk = chunk[written:]
            position += written
    return checksum
