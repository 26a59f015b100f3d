"""How nodes differ, and what this machine tells of itself."""

import platform

import pytest

import estimator_runtime
from estimator_runtime.launch.backends.ray.node_probe import difference, probe
from estimator_runtime.tf_internals import versions

_HERE = {"Python": "3.11", "estimator_runtime": "0.1.0", "TensorFlow": "2.21.0"}


@pytest.mark.parametrize(
    "node, told",
    [
        (_HERE, None),
        ({"Python": "3.12"}, "has Python 3.12, and this machine 3.11"),
        ({"Python": "3.11"}, "has no estimator_runtime, and this machine has 0.1.0"),
        (
            {**_HERE, "TensorFlow": "2.15.1"},
            "has TensorFlow 2.15.1, and this machine 2.21.0",
        ),
    ],
)
def test_a_difference_between_a_node_and_this_machine_is_told(node, told):
    assert difference(node, _HERE) == told


def test_what_tasks_need_is_missed_though_this_machine_lacks_it_too():
    here = {"Python": "3.11", "estimator_runtime": "0.1.0"}
    assert difference(here, here) == "has no TensorFlow, which tasks need"
    assert difference(_HERE, here) is None
    node = {**_HERE, "TensorFlow": "2.15.1"}
    told = "has TensorFlow 2.15.1, and node 10.0.0.1 2.21.0"
    assert difference(node, _HERE, "node 10.0.0.1") == told


def test_a_machine_tells_its_versions_as_a_task_would_find_them(tmp_path):
    assert probe(str(tmp_path)) == {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "estimator_runtime": estimator_runtime.__version__,
        "TensorFlow": versions.tensorflow_version(),
    }
    assert probe(str(tmp_path / "nowhere")) is None
