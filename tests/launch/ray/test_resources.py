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
