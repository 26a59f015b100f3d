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
def cluster(monkeypatch):
    """Return the `_Ray`, and what this machine has or raises."""
    from estimator_runtime.launch.ray import nodes as ray_nodes

    ray, here = _Ray(), [_HERE]

    def probe(_):
        if isinstance(here[-1], Exception):
            raise here[-1]
        return here[-1]

    monkeypatch.setattr(ray_nodes, "ray", ray)
    monkeypatch.setattr(ray_nodes.node_probe, "probe", probe)
    return ray, here


def test_nodes_are_held_against_each_other_where_this_machine_has_no_tensorflow(
    cluster,
):
    from estimator_runtime.launch.ray import nodes as ray_nodes

    found: dict = {}
    cluster[0].found = {"1" * 56: _NEW, "2" * 56: _NEW, "3" * 56: _OLD, "4" * 56: _HERE}
    first, second, third, fourth = cluster[0].found
    ray_nodes.check_nodes([first, second], None, found)
    told = f"node 10.0.0.{third} has TensorFlow 2.15.1, and node 10.0.0.{first} 2.21.0;"
    with pytest.raises(LaunchError, match=f"^{re.escape(told)} install the same"):
        ray_nodes.check_nodes([third], None, found)
    told = f"node 10.0.0.{fourth} has no TensorFlow, which tasks need; install the same"
    with pytest.raises(LaunchError, match=re.escape(told)):
        ray_nodes.check_nodes([fourth], None, found)


@pytest.mark.parametrize(
    "error, told",
    [
        (subprocess.TimeoutExpired("x", 60.0), "has not answered within 60 s"),
        (subprocess.CalledProcessError(3, "x"), "ended with exit status 3"),
        (
            FileNotFoundError(2, "No such file or directory"),
            "No such file or directory",
        ),
    ],
)
def test_this_machine_is_asked_once_and_what_it_cannot_say_is_an_error_of_ours(
    cluster, error, told
):
    from estimator_runtime.launch.ray import nodes as ray_nodes

    (ray, here), found = cluster, {}
    ray.found = {"1" * 56: _NEW}
    here.append(error)
    with pytest.raises(LaunchError, match=rf"^this machine cannot say .*{told}$"):
        ray_nodes.check_nodes(ray.found, None, found)
    here.append(_HERE)
    ray_nodes.check_nodes(ray.found, None, found)
    here.append(error)
    ray_nodes.check_nodes(ray.found, None, found)
