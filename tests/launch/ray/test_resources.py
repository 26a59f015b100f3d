"""What a cluster can never have."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Resources, why_never

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


@pytest.mark.parametrize(
    "cpus, problem",
    [
        ([3, 3, 3, 0.5], None),
        ([3, 3, 3, 3], "4 tasks take 3 CPU each, and the whole cluster has room for 3"),
        ([5, 5, 1], "2 tasks take 5 CPU each, and the whole cluster has room for 1"),
        (
            [2.8, 2.8, 2.8, 3.4],
            "4 tasks take at least 2.8 CPU each, and the whole cluster has room for 3",
        ),
    ],
)
def test_what_fits_in_the_sum_of_the_nodes_and_not_in_each_is_refused(cpus, problem):
    asked = [Resources(cpus=each) for each in cpus]
    has = " of that size: a has 4 CPU, b has 8 CPU and 1 GPU"
    assert why_never(asked, _NODES) == (problem and problem + has)


def test_what_fits_but_for_the_rounding_of_floats_is_not_refused():
    assert why_never([Resources(cpus=0.2)] * 3, {"a": Resources(cpus=0.6)}) is None


def test_a_part_of_a_gpu_is_of_one_gpu():
    nodes = {"a": Resources(cpus=8, gpus=2)}
    asked = [Resources(cpus=1, gpus=0.6)]
    assert why_never(asked * 2, nodes) is None
    assert why_never(asked * 3, nodes) == (
        "3 tasks take 1 CPU and 0.6 GPU each, and the whole cluster has room for 2 of "
        "that size: a has 8 CPU and 2 GPU"
    )


@pytest.mark.parametrize("value", [-1, float("inf"), "2", True])
def test_an_amount_that_cannot_be_is_refused(value):
    with pytest.raises(
        ConfigError, match=r"^Resources: gpus is .*; give a number, 0 or"
    ):
        Resources(gpus=value)
