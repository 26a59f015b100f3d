"""What a task cannot be given."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Resources


def test_several_gpus_and_a_part_of_one_are_refused():
    with pytest.raises(ConfigError, match=r"^a task takes 1\.5 GPU; give a whole"):
        Resources(gpus=1.5)
