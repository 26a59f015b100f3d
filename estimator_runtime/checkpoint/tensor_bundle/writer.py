"""A writer of checkpoint files that are byte for byte those of a Saver.

TensorFlow's own save op takes several times the processor time: it writes through the
page cache, and its checksums are slower. It is used only for types of values that no
other writer here supports.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, tensor_bundle_pb2

from estimator_runtime.checkpoint.tensor_bundle import index
from estimator_runtime.checkpoint.tensor_bundle.data_file import DataFile
from estimator_runtime.checkpoint.tensor_bundle.table import masked, table

tf1 = tf.compat.v1


# `Saved` is `Any` here: this package imports nothing of a higher layer.
class BundleWriter:
    """A writer of checkpoints in the V2 format, as one shard, from arrays.

    You may use it on any thread, while another thread trains. If a checkpoint has
    strings or parts of partitioned variables, TensorFlow's save op writes all of it.

    Args:
        saved: One `Saved` for each value.
    """

    def __init__(self, saved: Sequence[Any]) -> None:
        self._saved = saved
        self._is_plain = len({each.name for each in saved}) == len(saved) and not any(
            each.slice_spec or each.tensor.dtype.base_dtype == tf.string
            for each in saved
        )

    def write(self, prefix: str, arrays: Sequence[np.ndarray]) -> None:
        """Write the files of one checkpoint, without syncing them to the disk.

        Args:
            prefix: Path without suffix; its folder exists.
            arrays: The values of the tensors in `saved`. Strings are bytes objects.

        Raises:
            OSError: If the files cannot be written.
            tf.errors.OpError: If TensorFlow cannot write them.
        """
        if not self._is_plain:
            self._save_op(prefix, *arrays)
            return
        header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
        header.version.producer = 1
        entries = [(b"", header.SerializeToString())]
        with DataFile(index.shard_path(prefix, 0, 1)) as data_file:
            for saved, array in zip(self._saved, arrays, strict=True):
                entry = tensor_bundle_pb2.BundleEntryProto(
                    dtype=saved.tensor.dtype.base_dtype.as_datatype_enum,
                    offset=data_file.bytes,
                    size=array.nbytes,
                    crc32c=masked(data_file.write(array)),
                )
                entry.shape.SetInParent()  # TensorFlow writes it for a scalar too
                for size in array.shape:
                    entry.shape.dim.add(size=size)
                entries.append((saved.name.encode(), entry.SerializeToString()))
        with open(f"{prefix}.index", "wb") as index_file:
            index_file.write(table(sorted(entries)))

    @functools.cached_property
    def _save_op(self) -> Callable[..., Any]:
        """TensorFlow's save op, as a function of the prefix and the arrays.

        It has its own graph and session. So you may call it on any thread, with eager
        execution on or off, while another thread trains.
        """
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            prefix = tf1.placeholder(tf.string, [])
            values = [
                tf1.placeholder(each.tensor.dtype.base_dtype) for each in self._saved
            ]
            save = tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=[each.name for each in self._saved],
                shape_and_slices=[each.slice_spec for each in self._saved],
                tensors=values,
            )
        config = tf1.ConfigProto(device_count={"GPU": 0})
        # The graph has nothing to optimize.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = tf1.Session(graph=graph, config=config)
        options = config_pb2.CallableOptions(
            feed=[prefix.name, *(each.name for each in values)], target=[save.name]
        )
        # Runs the op on the calling thread: the threads of the pool are for the steps.
        options.run_options.inter_op_thread_pool = -1
        save_all = session._do_call(session._make_callable_from_options, options)
        # The arrays are passed without a copy.
        return functools.partial(session._do_call, save_all)
