"""Writes values into the files of a checkpoint, with TensorFlow's own save op."""

import functools

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

tf1 = tf.compat.v1


class SaveOpWriter:
    """Writes checkpoints of the V2 format, as one shard, from arrays.

    It has a graph and a session of its own, so that any thread may use it, with eager
    execution on or off, while another one trains.

    Args:
        saved: List of `Saved`, one for each value.
    """

    def __init__(self, saved):
        self._names = [each.name for each in saved]
        self._slices = [each.slice_spec for each in saved]
        self._dtypes = [each.tensor.dtype.base_dtype for each in saved]

    def write(self, prefix, values):
        """Write the files of one checkpoint; they need not be on the disk yet.

        Args:
            prefix: Path without suffix; its folder exists.
            values: `Values` of what is saved.

        Raises:
            tf.errors.OpError: If they cannot be written.
        """
        self._save(prefix, *values.arrays)

    @functools.cached_property
    def _save(self):
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            prefix = tf1.placeholder(tf.string, [])
            values = [tf1.placeholder(dtype) for dtype in self._dtypes]
            save = tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=self._names,
                shape_and_slices=self._slices,
                tensors=values,
            )
        config = tf1.ConfigProto(device_count={"GPU": 0})
        # There is nothing to make faster.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = tf1.Session(graph=graph, config=config)
        options = config_pb2.CallableOptions(
            feed=[prefix.name, *(each.name for each in values)], target=[save.name]
        )
        # On the calling thread: those of the pool are for the steps.
        options.run_options.inter_op_thread_pool = -1
        save_all = session._do_call(session._make_callable_from_options, options)
        # The arrays are passed on as they are, without a copy.
        return functools.partial(session._do_call, save_all)
