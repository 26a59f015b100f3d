"""A cluster of one worker and two parameter servers, all of this process."""

import dataclasses
import functools
import socket

import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402 (after install, as a program would)

from estimator_runtime.loop.graph.subgraph import Subgraph  # noqa: E402
from estimator_runtime.loop.packing.requests import task_finder  # noqa: E402
from estimator_runtime.loop.packing.step import PackedStep  # noqa: E402

tf1 = tf.compat.v1
WORKER = "/job:worker/task:0"
PS = "/job:ps/task:0"
DEVICES = [
    f"/job:{job}/replica:0/task:{task}/device:CPU:0"
    for job, task in (("ps", 0), ("ps", 1), ("worker", 0))
]


@functools.cache
def servers():
    """Return the servers of the cluster; TensorFlow cannot stop them."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    spec = {"ps": addresses[:2], "worker": addresses[2:]}
    tasks = [("worker", 0), ("ps", 0), ("ps", 1)]
    return [tf.distribute.Server(spec, job, index) for job, index in tasks]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What tests use of the cluster."""

    worker: str = WORKER
    ps: str = PS

    @property
    def spec(self):
        """The addresses of the tasks, by job."""
        return tf.train.ClusterSpec(servers()[0].server_def.cluster).as_dict()

    @property
    def master(self):
        """The session target of the worker."""
        return servers()[0].target

    def devices(self, ps_tasks=1):
        """Return a scope in which variables are on the parameter servers."""
        setter = tf1.train.replica_device_setter(
            ps_tasks=ps_tasks, worker_device=self.worker
        )
        return tf1.device(setter)

    def pack(self, *roots):
        """Return a packed step that computes ops of the default graph."""
        return PackedStep(self.step(*roots), self.task_of())

    def step(self, *roots):
        """Return the part of the default graph that computes ops."""
        return Subgraph(tf1.get_default_graph(), roots)

    def task_of(self):
        """Return what finds the task of an op."""
        return task_finder(DEVICES)

    def crossing(self, *roots):
        """Return how many tensors cross between tasks when ops are run."""
        task_of = self.task_of()
        return len(
            {
                (tensor.name, task_of(op))
                for op in self.step(*roots).ops.values()
                for tensor in op.inputs
                if tensor.dtype != tf.resource and task_of(tensor.op) != task_of(op)
            }
        )


@pytest.fixture
def cluster():
    """Return the cluster, with a new default graph."""
    with tf.Graph().as_default():
        yield Cluster()


@pytest.fixture(autouse=True)
def _lost_sessions_are_logged():
    """Log at INFO, as TensorFlow does where it loses a session and makes another."""
    before = tf1.logging.get_verbosity()
    tf1.logging.set_verbosity(tf1.logging.INFO)
    yield
    tf1.logging.set_verbosity(before)
