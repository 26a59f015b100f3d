"""Options of a training session: their values, and how they travel to it."""

import pytest

from estimator_runtime.config import options
from estimator_runtime.config.options import TrainingOptions
from estimator_runtime.errors import ConfigError, ConfigTypeError

VARIABLE = "ESTIMATOR_RUNTIME_STEPS_PER_RUN"
ASYNC = "ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT"
OVERHEAD = "ESTIMATOR_RUNTIME_CHECKPOINT_OVERHEAD"
OVERHEAD_REMEDY = (
    "give the fraction of the time that checkpoints may take, more than 0 and less than "
    "1, such as 0.01"
)
REMEDY = 'give a whole number of steps, 1 or more, or "auto"'


@pytest.mark.parametrize(
    ("steps_per_run", "error", "shown"),
    [
        (0, ConfigError, "0"),
        ("x", ConfigError, "'x'"),
        (1.5, ConfigTypeError, "1.5 (float)"),
        (True, ConfigTypeError, "True (bool)"),
    ],
)
def test_a_bad_steps_per_run_is_one_line_that_says_what_would_do(
    steps_per_run, error, shown
):
    with pytest.raises(error) as raised:
        TrainingOptions(steps_per_run=steps_per_run)
    assert type(raised.value) is error
    assert str(raised.value) == f"steps_per_run is {shown}; {REMEDY}"


@pytest.mark.parametrize(
    ("environ", "steps_per_run"),
    [
        ({}, "auto"),
        ({VARIABLE: "50"}, 50),
        ({VARIABLE: "auto"}, "auto"),
    ],
)
def test_the_environment_gives_steps_per_run(environ, steps_per_run):
    assert TrainingOptions.from_environ(environ).steps_per_run == steps_per_run


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0", "0"),
        ("٣", "'٣'"),
    ],
)
def test_a_bad_text_in_the_environment_names_the_variable(text, shown):
    with pytest.raises(ConfigError) as raised:
        TrainingOptions.from_environ({VARIABLE: text})
    assert str(raised.value) == f"{VARIABLE} is {shown}; {REMEDY}"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("0", False)])
def test_the_environment_says_whether_checkpoints_are_asynchronous(text, value):
    assert TrainingOptions().async_checkpoint
    read = TrainingOptions.from_environ({ASYNC: text, VARIABLE: "5"})
    assert read == TrainingOptions(async_checkpoint=value, steps_per_run=5)


@pytest.mark.parametrize("text", ["0.01", "1e-2", " 0.01 "])
def test_the_environment_gives_the_overhead_of_checkpoints(text):
    assert TrainingOptions().checkpoint_overhead is None
    assert TrainingOptions.from_environ({OVERHEAD: text}).checkpoint_overhead == 0.01


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (0, ConfigError, "0"),
        (-0.1, ConfigError, "-0.1"),
        (float("nan"), ConfigError, "nan"),
        (True, ConfigTypeError, "True (bool)"),
    ],
)
def test_a_bad_overhead_is_one_line_that_says_what_would_do(value, error, shown):
    with pytest.raises(error) as raised:
        TrainingOptions(checkpoint_overhead=value)
    assert type(raised.value) is error
    assert str(raised.value) == f"checkpoint_overhead is {shown}; {OVERHEAD_REMEDY}"


def test_progress_is_one_of_four_words():
    name = "ESTIMATOR_RUNTIME_PROGRESS"
    assert TrainingOptions().progress == "none"
    for word in ("auto", "bar", "plain", "none"):
        assert TrainingOptions.from_environ({name: word}).progress == word
    with pytest.raises(ConfigError) as raised:
        TrainingOptions.from_environ({name: "loud"})
    assert str(raised.value) == f"{name} is 'loud'; give auto, bar, plain, none"


def test_a_variable_has_no_say_in_what_is_given():
    environ = {ASYNC: "nonsense", VARIABLE: "5"}
    given = TrainingOptions.from_environ(environ, async_checkpoint=False)
    assert given == TrainingOptions(async_checkpoint=False, steps_per_run=5)


def test_a_context_has_the_options_of_the_innermost_use(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2")
    outer, inner = TrainingOptions(steps_per_run=5), TrainingOptions()
    seen = [options.current(None)]
    with options.use(outer):
        seen.append(options.current(None))
        with options.use(inner):
            seen.append(options.current(None))
        seen.append(options.current(None))
    seen.append(options.current(None))
    assert [each.steps_per_run for each in seen] == [2, 5, "auto", 5, 2]
