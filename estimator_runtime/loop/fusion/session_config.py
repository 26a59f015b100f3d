"""What the devices and the ConfigProto of a session allow a loop of steps."""

import tensorflow as tf

from estimator_runtime.loop.graph import xla
from estimator_runtime.loop.graph.subgraph import CannotFuse
from estimator_runtime.tf_internals import sessions


def has_only_cpus(session: tf.compat.v1.Session) -> bool:
    """Return whether all devices of a session are CPUs."""
    return all(each.device_type == "CPU" for each in session.list_devices())


def may_split(session: tf.compat.v1.Session) -> bool:
    """Return whether the ops of a step run on CPUs only, and at their own precision."""
    config = sessions.config_of(session)
    return xla.mixed_precision(config) is None and has_only_cpus(session)


def check_config(session: tf.compat.v1.Session) -> None:
    """Raise CannotFuse if a session has settings that need one step per call."""
    config = sessions.config_of(session)
    if reason := xla.reason(config):
        raise CannotFuse(reason)
    if config.operation_timeout_in_ms:
        raise CannotFuse("has a time limit of its own (operation_timeout_in_ms)")
    # TensorFlow keeps random generators by the names of their ops. With this setting,
    # the names of ops in branches change from one request to the next.
    if config.graph_options.place_pruned_graph:
        raise CannotFuse("is placed anew for each request (place_pruned_graph)")
