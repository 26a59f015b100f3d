"""Checks the values of a RunConfig before any of them is used."""

import contextlib
import difflib
import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from estimator_runtime.errors import ConfigError, ConfigTypeError

_Init = TypeVar("_Init", bound=Callable[..., None])


# What each number counts, and whether it may be 0. None may be negative.
_NUMBERS = {
    "save_summary_steps": ("steps", True),
    "save_checkpoints_steps": ("steps", True),
    "save_checkpoints_secs": ("seconds", True),
    "keep_checkpoint_max": ("checkpoints", True),
    "keep_checkpoint_every_n_hours": ("hours", False),
    "log_step_count_steps": ("steps", False),
    "session_creation_timeout_secs": ("seconds", False),
}

# Any object is accepted except strings and numbers, which are certainly wrong.
_OBJECTS = {
    "train_distribute": "a tf.distribute.Strategy",
    "experimental_distribute": "a DistributeConfig",
}
_PLAIN = (str, bytes, numbers.Number)


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
    """Check settings given by name; None and unknown names are ignored.

    The rules are those of the frozen RunConfig (`_validate_properties`). Values that it
    accepts by accident, such as a number for model_dir, are rejected too.

    Args:
        settings: Values by RunConfig argument name.

    Raises:
        ConfigError: (a ValueError) If a value is out of range, or both checkpoint
            intervals are set.
        ConfigTypeError: (a ValueError and a TypeError) If the type of a value does not
            allow its rule to be evaluated.
    """
    for name, value in settings.items():
        if value is None:
            continue
        if name in _NUMBERS:
            _check_range(name, value)
        elif name == "model_dir":
            _check_model_dir(value)
        elif name == "session_config":
            _check_session_config(value)
        elif name == "protocol":
            _check_protocol(value)
        elif name in ("tf_random_seed", "experimental_max_worker_delay_secs"):
            _check_integer(name, value)
        elif name in _OBJECTS:
            _check_object(name, value)
    _check_one_interval(
        settings.get("save_checkpoints_steps"), settings.get("save_checkpoints_secs")
    )


def names_checked(init: _Init) -> _Init:
    """Return a constructor that suggests the right name for a misspelled argument.

    It raises a ConfigTypeError (a ValueError and a TypeError) with the suggestion. If
    no argument has a similar name, Python's own error is raised.
    """
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs.keys() - known.keys():
            for similar in difflib.get_close_matches(name, known, n=1):
                raise ConfigTypeError(
                    f"RunConfig: there is no argument {name!r}; did you mean "
                    f"{similar!r}?"
                )
        init(self, *args, **kwargs)

    return cast(_Init, checked)


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
def errors_of_frozen_class() -> Iterator[None]:
    """Convert a ValueError from the frozen RunConfig into a ConfigError.

    The frozen class performs checks that this module does not repeat.
    """
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"RunConfig: {' '.join(str(error).split())}") from error


def _check_range(name: str, value: Any) -> None:
    unit, may_be_0 = _NUMBERS[name]
    # Programs match on TensorFlow's wording, so the message contains it.
    rule = f"{name} should be {'>=' if may_be_0 else '>'} 0"
    remedy = f"{rule}; give a number of {unit}, or None"
    check_number(f"RunConfig: {name}", value, remedy)
    # Not converted, because an int may be too large for a float. False for NaN.
    if not (value >= 0 if may_be_0 else value > 0):
        raise ConfigError(f"RunConfig: {name} is {value!r}, but {remedy}")


def _check_model_dir(value: Any) -> None:
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise ConfigTypeError(
            f"RunConfig: model_dir is {_shown(value)}; give a path as str or "
            "os.PathLike, or None"
        )
    if not os.fspath(value):
        raise ConfigError(
            "RunConfig: model_dir should be non-empty. It is ''; give a folder, or None"
        )


def _check_session_config(value: Any) -> None:
    # Recognized by its name, because this module does not import TensorFlow.
    descriptor = getattr(value, "DESCRIPTOR", None)
    if getattr(descriptor, "full_name", None) != "tensorflow.ConfigProto":
        raise ConfigError(
            f"RunConfig: session_config is {_shown(value)}, but session_config must "
            "be instance of ConfigProto; give a tf.compat.v1.ConfigProto, or None"
        )


def _check_protocol(value: Any) -> None:
    if value not in ("grpc", "grpc+verbs"):
        raise ConfigError(
            f"RunConfig: protocol is {_shown(value)}, but protocol should be grpc or "
            "grpc+verbs; give one of them, or None for grpc"
        )


def _check_one_interval(steps: Any, secs: Any) -> None:
    if steps is not None and secs is not None:
        raise ConfigError(
            f"RunConfig: save_checkpoints_steps is {steps!r} and "
            f"save_checkpoints_secs is {secs!r}, but `save_checkpoints_steps` and "
            "`save_checkpoints_secs` cannot be both set. Leave one of them out"
        )


def _check_object(name: str, value: Any) -> None:
    # TensorFlow treats a false value as None.
    if value and isinstance(value, _PLAIN):
        raise ConfigTypeError(
            f"RunConfig: {name} is {_shown(value)}; give {_OBJECTS[name]}, or None"
        )


def _check_integer(name: str, value: Any) -> None:
    if not isinstance(value, int):
        raise ConfigError(
            f"RunConfig: {name} is {_shown(value)}, but {name} must be "
            f"{'integer.' if name == 'tf_random_seed' else 'an integer if set.'} "
            "Give an int, or None"
        )


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())  # the repr of a proto has several lines
    return f"{text} ({type(value).__name__})"
