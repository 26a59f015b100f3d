"""Whether a session's model is ready, as TensorFlow's `SessionManager` decides.

A program may give ops of its own for this. The manager accepts one that returns names,
numbers or nothing.
"""

import tensorflow as tf
from tensorflow.python.training.session_manager import SessionManager


def is_ready(manager: SessionManager, session: tf.compat.v1.Session) -> bool:
    """Return whether the `ready_op` finds the model initialized."""
    return manager._model_ready(session)[0]


def is_ready_for_local_init(
    manager: SessionManager, session: tf.compat.v1.Session
) -> bool:
    """Return whether the `ready_for_local_init_op` finds the variables initialized."""
    return manager._model_ready_for_local_init(session)[0]
