"""What a task cannot be given."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Resources


@pytest.mark.parametrize("value", [-1, float("inf"), "2", True])
def test_an_amount_that_cannot_be_is_refused(value):
    with pytest.raises(
        ConfigError, match=r"^Resources: gpus is .*; give a number, 0 or"
    ):
        Resources(gpus=value)


def test_several_gpus_and_a_part_of_one_are_refused():
    with pytest.raises(ConfigError, match=r"^a task takes 1\.5 GPU; give a whole"):
        Resources(gpus=1.5)
