"""What nodes of a Ray cluster have installed, held against each other and this machine."""

import re
import subprocess
import types

import pytest

from estimator_runtime.errors import LaunchError

_HERE = {"Python": "3.11", "estimator_runtime": "0.1.0"}
_OLD, _NEW = {**_HERE, "TensorFlow": "2.15.1"}, {**_HERE, "TensorFlow": "2.21.0"}


class _Ray:
    """Stands for Ray: what is asked of a node is answered as the test says.

    Attributes:
        found: What each node has, by its id; its address is that with 10.0.0. before.
    """

    def __init__(self):
        import ray

        self.exceptions, self.found, self._node = ray.exceptions, {}, None
        self.cloudpickle = types.SimpleNamespace(
            register_pickle_by_value=lambda _: None,
            unregister_pickle_by_value=lambda _: None,
        )

    def nodes(self):
        return [
            {"NodeID": node, "NodeManagerAddress": f"10.0.0.{node}"}
            for node in self.found
        ]

    def remote(self, *_):  # of the function, and of the call
        return self if self._node is None else self._node

    def options(self, scheduling_strategy, **_):
        there = _Ray()
        there._node = scheduling_strategy.node_id
        return there

    def get(self, node, timeout):
        return self.found[node]


@pytest.fixture
def ray(monkeypatch):
    """Return the `_Ray`, and the answers of this machine, of which the last one counts."""
    from estimator_runtime.launch.backends.ray import cluster

    ray, here = _Ray(), [_HERE]

    def probe(_):
        if isinstance(here[-1], Exception):
            raise here[-1]
        return here[-1]

    monkeypatch.setattr(cluster, "ray", ray)
    monkeypatch.setattr(cluster.node_probe, "probe", probe)
    return ray, here


def test_nodes_are_held_against_each_other_where_this_machine_has_no_tensorflow(ray):
    from estimator_runtime.launch.backends.ray.cluster import RayCluster

    cluster = RayCluster(None)
    ray[0].found = {"1" * 56: _NEW, "2" * 56: _NEW, "3" * 56: _OLD, "4" * 56: _HERE}
    first, second, third, fourth = ray[0].found
    cluster.check_nodes([first, second])
    told = f"node 10.0.0.{third} has TensorFlow 2.15.1, and node 10.0.0.{first} 2.21.0;"
    with pytest.raises(LaunchError, match=f"^{re.escape(told)} install the same"):
        cluster.check_nodes([third])
    told = f"node 10.0.0.{fourth} has no TensorFlow, which tasks need; install the same"
    with pytest.raises(LaunchError, match=re.escape(told)):
        cluster.check_nodes([first, fourth])


@pytest.mark.parametrize(
    "error, told",
    [
        (subprocess.TimeoutExpired("x", 60.0), r"\(TimeoutExpired\)"),
        (FileNotFoundError(2, "No such file or directory"), "such file or directory"),
    ],
)
def test_this_machine_is_asked_once_and_what_it_cannot_say_is_an_error_of_ours(
    ray, error, told
):
    from estimator_runtime.launch.backends.ray.cluster import RayCluster

    (there, here), cluster = ray, RayCluster(None)
    there.found = {"1" * 56: _NEW, "2" * 56: _NEW}
    here.append(error)
    with pytest.raises(LaunchError, match=rf"^this machine cannot say .*{told}$"):
        cluster.check_nodes(["1" * 56])
    here.append(_HERE)
    cluster.check_nodes(["1" * 56])
    here.append(error)
    cluster.check_nodes(there.found)
