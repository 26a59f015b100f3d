"""What a cluster can never have."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Resources

_NODES = {"a": Resources(cpus=4), "b": Resources(cpus=8, gpus=1)}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ([Resources(cpus=8), Resources(cpus=4)], None),
        (
            [Resources(), Resources(cpus=4, gpus=2)],
            "one task takes 4 CPU and 2 GPU, and no node has that: a has 4 CPU, b has 8 "
            "CPU and 1 GPU",
        ),
        (
            [Resources(cpus=0.5, gpus=0.75)] * 2,
            "2 tasks take 1 CPU and 1.5 GPU, and the whole cluster has 12 CPU and 1 "
            "GPU: a has 4 CPU, b has 8 CPU and 1 GPU",
        ),
    ],
)
def test_what_no_node_and_not_all_together_have_is_refused(asked, problem):
    from estimator_runtime.launch.backends.ray.cluster import why_never

    assert why_never(asked, _NODES) == problem


def test_what_fits_but_for_the_rounding_of_floats_is_not_refused():
    from estimator_runtime.launch.backends.ray.cluster import why_never

    assert why_never([Resources(cpus=0.2)] * 3, {"a": Resources(cpus=0.6)}) is None


@pytest.mark.parametrize("value", [-1, float("inf"), "2", True])
def test_an_amount_that_cannot_be_is_refused(value):
    with pytest.raises(
        ConfigError, match=r"^Resources: gpus is .*; give a number, 0 or"
    ):
        Resources(gpus=value)
