"""What a cluster can never have."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.resources import Resources, why_never

_NODES = {"a": Resources(cpus=4), "b": Resources(cpus=8, gpus=1)}


def test_what_fits_is_not_refused():
    asked = [Resources(cpus=8), Resources(cpus=4)]
    assert why_never(asked, _NODES) is None


def test_a_task_that_is_larger_than_every_node_is_refused():
    asked = [Resources(), Resources(cpus=4, gpus=2)]
    assert why_never(asked, _NODES) == (
        "one task takes 4 CPU and 2 GPU, and no node has that: a has 4 CPU, b has 8 CPU "
        "and 1 GPU"
    )


def test_tasks_that_are_larger_than_all_nodes_together_are_refused():
    asked = [Resources(cpus=0.5, gpus=0.75)] * 2
    assert why_never(asked, _NODES) == (
        "2 tasks take 1 CPU and 1.5 GPU, and the whole cluster has 12 CPU and 1 GPU: a "
        "has 4 CPU, b has 8 CPU and 1 GPU"
    )


@pytest.mark.parametrize("value", [-1, float("inf"), "2", True])
def test_an_amount_that_cannot_be_is_refused(value):
    with pytest.raises(
        ConfigError, match=r"^Resources: gpus is .*; give a number, 0 or"
    ):
        Resources(gpus=value)
