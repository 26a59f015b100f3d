"""Savers and Scaffolds of TensorFlow."""

from typing import Any

import tensorflow as tf
from tensorflow.python.training import saver

BaseSaverBuilder: Any = saver.BaseSaverBuilder
BulkSaverBuilder: Any = saver.BulkSaverBuilder
saver_of_graph = saver._get_saver_or_default


def obstacle(given: Any) -> str | None:
    """Return why a Saver does not write V2 checkpoints as TensorFlow's own does.

    Returns:
        The reason, which completes a "because ..." clause; None if it does.
    """
    if type(given) is not saver.Saver or "save" in vars(given):
        return f"their saver is the program's own, {type(given).__name__!r}"
    if given._write_version != tf.compat.v1.train.SaverDef.V2:
        return "their saver writes the format of TensorFlow 0.x"
    if given._is_empty:
        return "their saver has nothing to save"
    return "their saver has not been built" if given.saver_def is None else None


def parts_of_user(scaffold: tf.compat.v1.train.Scaffold) -> list[str]:
    """Return the names of the parts that the program has given to a Scaffold.

    Only parts that an evaluation or a prediction uses count, without the Saver. The
    Scaffold must not be finalized.
    """
    parts = {
        "init_fn": scaffold._user_init_fn,
        "init_feed_dict": scaffold.init_feed_dict,
        "local_init_feed_dict": scaffold.local_init_feed_dict,
        "local_init_op": scaffold.local_init_op,
        "ready_op": scaffold.ready_op,
        "ready_for_local_init_op": scaffold.ready_for_local_init_op,
    }
    return [name for name, value in parts.items() if value is not None]
