"""Checks the values of a RunConfig before any of them is used."""

import contextlib
import difflib
import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from estimator_runtime.errors import ConfigError, ConfigTypeError

# What each number counts.
_NUMBERS = {
    "save_summary_steps": "steps",
    "save_checkpoints_steps": "steps",
    "save_checkpoints_secs": "seconds",
    "keep_checkpoint_max": "checkpoints",
    "keep_checkpoint_every_n_hours": "hours",
    "log_step_count_steps": "steps",
    "session_creation_timeout_secs": "seconds",
}

# Any object is accepted except strings and numbers, which are certainly wrong.
_OBJECTS = {
    "train_distribute": "a tf.distribute.Strategy",
    "experimental_distribute": "a DistributeConfig",
}
_PLAIN = (str, bytes, numbers.Number)
_Init = TypeVar("_Init", bound=Callable[..., None])


def naming_misspelt(init: _Init) -> _Init:
    """Make RunConfig's constructor say which argument a misspelt one may be.

    MonitoredTrainingSession has `save_checkpoint_steps`, for example. Python says it
    itself from 3.13 on.
    """

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        _, *known = inspect.signature(init).parameters
        for name in (each for each in kwargs if each not in known):
            for similar in difflib.get_close_matches(name, known, n=1):
                raise ConfigTypeError(
                    f"RunConfig has no argument {name}; did you mean {similar}?"
                )
        init(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


def unwrapped(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with one-element arrays replaced by their number.

    Numbers loaded with `numpy.load` are such arrays.
    """
    return {
        name: plain(value) if name in _NUMBERS else value
        for name, value in settings.items()
    }


def plain(value: Any) -> Any:
    """Return the number in a one-element array, and any other value unchanged."""
    if isinstance(value, numbers.Number) or getattr(value, "size", None) != 1:
        return value
    number = value.item()
    return number if isinstance(number, numbers.Number) else value


def check(settings: Mapping[str, Any]) -> None:
    """Check the types of settings given by name; None and unknown names are ignored.

    The frozen RunConfig checks the values (`_validate_properties`), but fails on some
    types with an error that names no setting, and accepts others by accident, such as a
    number for model_dir.

    Args:
        settings: Values by RunConfig argument name.

    Raises:
        ConfigTypeError: (a ValueError and a TypeError) If a value has a wrong type.
    """
    for name, value in settings.items():
        if value is None:
            continue
        if name in _NUMBERS:
            rule = f"it should be a number of {_NUMBERS[name]}, or None"
            check_number(f"RunConfig: {name}", value, rule)
        elif name == "model_dir":
            if not isinstance(value, (str, bytes, os.PathLike)):
                raise ConfigTypeError(
                    f"RunConfig: model_dir is {_shown(value)}; give a path as str or "
                    "os.PathLike, or None"
                )
        # TensorFlow treats a false value as None.
        elif name in _OBJECTS and value and isinstance(value, _PLAIN):
            raise ConfigTypeError(
                f"RunConfig: {name} is {_shown(value)}; give {_OBJECTS[name]}, or None"
            )


def check_number(source: str, value: Any, rule: str) -> None:
    """Raise an error if a value is not a real number, of any size or kind.

    Args:
        source: The class or function that takes the value and the name of the argument,
            such as "RunConfig: keep_checkpoint_max".
        value: The value.
        rule: What is accepted, for the message.

    Raises:
        ConfigTypeError: (a ValueError and a TypeError) If it is not a real number.
    """
    if not isinstance(value, numbers.Real):
        raise ConfigTypeError(f"{source} is {_shown(value)}, but {rule}")


def resolve_model_dir(given: Any, in_tf_config: str | None) -> str | bytes | None:
    """Return the model_dir of a RunConfig, or the one in TF_CONFIG if it has none.

    Args:
        given: RunConfig's model_dir, as str, bytes, os.PathLike or None.
        in_tf_config: TF_CONFIG's model_dir, or None.

    Returns:
        The folder, or None if neither names one.

    Raises:
        ConfigError: (a ValueError) If the two differ.
    """
    if given is None:
        return in_tf_config
    folder = os.fspath(given)
    if in_tf_config not in (None, folder):
        raise ConfigError(
            f"RunConfig: model_dir is {folder!r}, but TF_CONFIG has "
            f"{in_tf_config!r}. `model_dir` provided in RunConfig construct, if set, "
            "must have the same value as the model_dir in TF_CONFIG. Leave one of "
            "them out"
        )
    return folder


@contextlib.contextmanager
def errors_of_frozen_class(settings: Mapping[str, Any]) -> Iterator[None]:
    """Convert a ValueError from the frozen RunConfig into a ConfigError.

    Args:
        settings: Values by RunConfig argument name, which the error shows.
    """
    try:
        yield
    except ValueError as error:
        rule = " ".join(str(error).split())
        name = rule.partition(" ")[0]
        value = f" (it is {settings[name]!r})" if name in settings else ""
        raise ConfigError(f"RunConfig: {rule}{value}") from error


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())  # the repr of a proto has several lines
    return f"{text} ({type(value).__name__})"
