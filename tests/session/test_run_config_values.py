import subprocess
import sys

import numpy as np
import pytest

from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.session import run_config_values

NUMBERS = {
    "save_summary_steps": "should be >= 0; give a number of steps, or None",
    "save_checkpoints_steps": "should be >= 0; give a number of steps, or None",
    "save_checkpoints_secs": "should be >= 0; give a number of seconds, or None",
    "keep_checkpoint_max": "should be >= 0; give a number of checkpoints, or None",
    "keep_checkpoint_every_n_hours": "should be > 0; give a number of hours, or None",
    "log_step_count_steps": "should be > 0; give a number of steps, or None",
    "session_creation_timeout_secs": "should be > 0; give a number of seconds, or None",
}


def refusal(**values):
    """Return the class and the text of the error for these settings."""
    with pytest.raises(ConfigError) as caught:
        run_config_values.check(values)
    return type(caught.value), str(caught.value)


def test_settings_are_checked_without_tensorflow():
    program = "import sys, estimator_runtime.session.run_config_values; print('tensorflow' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_numbers_in_arrays_are_unwrapped_and_all_else_is_left():
    given = {
        **{"save_summary_steps": np.array(5), "save_checkpoints_secs": np.array([1.5])},
        **{"log_step_count_steps": np.int64(5), "keep_checkpoint_max": np.arange(2)},
        **{"model_dir": np.array("folder"), "train_distribute": np.array(None)},
    }
    found = run_config_values.unwrapped(given)
    steps, secs = found.pop("save_summary_steps"), found.pop("save_checkpoints_secs")
    assert (steps, type(steps), secs, type(secs)) == (5, int, 1.5, float)
    assert all(value is given[name] for name, value in found.items())


@pytest.mark.parametrize("name", NUMBERS)
def test_a_negative_number_is_refused_with_its_unit(name):
    assert refusal(**{name: -1}) == (
        ConfigError,
        f"RunConfig: {name} is -1, but {name} {NUMBERS[name]}",
    )


@pytest.mark.parametrize(
    ("name", "zero_passes"), [(n, ">= 0" in rule) for n, rule in NUMBERS.items()]
)
def test_zero_passes_where_it_means_none_or_all(name, zero_passes):
    if zero_passes:
        run_config_values.check({name: 0})
    else:
        assert refusal(**{name: 0}) == (
            ConfigError,
            f"RunConfig: {name} is 0, but {name} {NUMBERS[name]}",
        )


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("value", "shown"),
    [("5", "'5' (str)"), ([1], "[1] (list)"), (1j, "1j (complex)")],
)
def test_what_is_no_number_is_refused_with_its_type(name, value, shown):
    assert refusal(**{name: value}) == (
        ConfigTypeError,
        f"RunConfig: {name} is {shown}, but {name} {NUMBERS[name]}",
    )


@pytest.mark.parametrize(
    "name, remedy",
    [
        ("train_distribute", "a tf.distribute.Strategy"),
        ("experimental_distribute", "a DistributeConfig"),
    ],
)
def test_a_plain_value_is_no_strategy(name, remedy):
    for nothing in (None, "", False):  # as TensorFlow has it
        run_config_values.check({name: nothing})
    for anything in (print, ("a", "named tuple, as DistributeConfig")):
        run_config_values.check({name: anything})
    assert refusal(**{name: "mirrored"}) == (
        ConfigTypeError,
        f"RunConfig: {name} is 'mirrored' (str); give {remedy}, or None",
    )


def test_a_model_dir_that_is_no_path_is_refused():
    assert refusal(model_dir=5) == (
        ConfigTypeError,
        "RunConfig: model_dir is 5 (int); give a path as str or os.PathLike, or None",
    )


def test_two_checkpoint_intervals_are_refused_even_if_one_is_zero():
    assert refusal(save_checkpoints_steps=5, save_checkpoints_secs=0) == (
        ConfigError,
        "RunConfig: save_checkpoints_steps is 5 and save_checkpoints_secs is 0, but "
        "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set. "
        "Leave one of them out",
    )
