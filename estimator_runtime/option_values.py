"""What options of training may be, given in Python or as text."""

from estimator_runtime.errors import ConfigError, ConfigTypeError

LOOPS = ("auto", "plans", "stock")
PROGRESS_MODES = ("auto", "bar", "plain", "none")


def check_loop(value: object, source: str) -> None:
    """Raise a ConfigError if `value` is not the name of a step loop."""
    if value not in LOOPS:
        raise ConfigError(f"{source} is {value!r}; give {', '.join(LOOPS)}")


def parse_steps_per_run(text, source):
    """Read a number of steps, or "auto", given as text.

    Raises:
        ConfigError: If it is neither; the message names `source`.
    """
    value = int(text) if text.strip().isascii() and text.strip().isdigit() else text
    check_steps_per_run(value, source)
    return value


def check_steps_per_run(value, source):
    """Check a number of steps, or "auto".

    Raises:
        ConfigError: If it is out of range or not a whole number.
        ConfigTypeError: If it is of another type.
    """
    if value == "auto":
        return
    remedy = 'give a whole number of steps, 1 or more, or "auto"'
    if isinstance(value, str):
        raise ConfigError(f"{source} is {value!r}; {remedy}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); {remedy}"
        )
    if value < 1:
        raise ConfigError(f"{source} is {value}; {remedy}")


def check_async_checkpoint(value, source):
    """Check whether checkpoints are written while training goes on.

    Raises:
        ConfigTypeError: If it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); give True to write "
            "checkpoints while training goes on, or False"
        )


def parse_async_checkpoint(text, source):
    """Read whether checkpoints are written while training goes on: 1 or 0.

    Raises:
        ConfigError: If it is neither; the message names `source`.
    """
    return _is_one(text, source, "to write checkpoints while training goes on")


def parse_checkpoint_overhead(text, source):
    """Read a part of the wall time, given as text.

    Raises:
        ConfigError: If it is none; the message names `source`.
    """
    try:
        value = float(text)
    except ValueError:
        value = text
    check_checkpoint_overhead(value, source)
    return value


def check_checkpoint_overhead(value, source):
    """Check the part of the wall time that checkpoints may take.

    Raises:
        ConfigError: If it is out of range.
        ConfigTypeError: If it is no number.
    """
    if value is None:
        return
    remedy = "give the part of the time that checkpoints may take, such as 0.01"
    if isinstance(value, str):
        raise ConfigError(f"{source} is {value!r}; {remedy}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); {remedy}"
        )
    if not 0 < value < 1:
        raise ConfigError(f"{source} is {value!r}, not between 0 and 1; {remedy}")


def check_keep_best(value, source):
    """Check how many of the best checkpoints are kept.

    Raises:
        ConfigError: If it is negative.
        ConfigTypeError: If it is no whole number.
    """
    remedy = "give how many of the best checkpoints to keep, or 0 for none"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); {remedy}"
        )
    if value < 0:
        raise ConfigError(f"{source} is {value}; {remedy}")


def parse_keep_best(text, source):
    """Read how many of the best checkpoints are kept, given as text.

    Raises:
        ConfigError: If it is no number, or negative; the message names `source`.
    """
    try:
        value = int(text)
    except ValueError as error:
        raise ConfigError(
            f"{source} is {text!r}; give how many of the best checkpoints to keep, or "
            "0 for none"
        ) from error
    check_keep_best(value, source)
    return value


def parse_verbose(text, source):
    """Read whether every line is shown: 1 or 0.

    Raises:
        ConfigError: If it is neither; the message names `source`.
    """
    return _is_one(text, source, "to see every line of TensorFlow's")


def _is_one(text, source, purpose):
    if text not in ("0", "1"):
        raise ConfigError(f"{source} is {text!r}; give 1 {purpose}, or 0")
    return text == "1"


def check_best_metric(value, source):
    """Check the name of the metric by which checkpoints are the best.

    Raises:
        ConfigTypeError: If it is no text.
        ConfigError: If it is empty.
    """
    remedy = "give the name of a metric of the evaluation, such as 'loss'"
    if value is None:
        return
    if not isinstance(value, str):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); {remedy}"
        )
    if not value:
        raise ConfigError(f"{source} is ''; {remedy}")


def check_best_mode(value, source):
    """Check whether more or less of a metric is better.

    Raises:
        ConfigError: If it is neither "min" nor "max".
    """
    if value not in (None, "min", "max"):
        raise ConfigError(
            f"{source} is {value!r}; give 'min' if less of the metric is better, 'max' "
            "if more is"
        )


def check_progress(value, source):
    """Check how progress is shown.

    Raises:
        ConfigError: If it is none of the ways there are.
    """
    if value not in PROGRESS_MODES:
        raise ConfigError(f"{source} is {value!r}; give {', '.join(PROGRESS_MODES)}")


def parsed_by(check):
    """Make the parser of an option that is a text itself."""

    def parse(text, source):
        check(text, source)
        return text

    return parse


def best_mode_of(metric, mode):
    """Say whether more or less of a metric is better.

    Args:
        metric: Its name.
        mode: "min", "max", or None for "min" if it is a loss or an error.

    Raises:
        ConfigError: If it is None, and the name does not tell.
    """
    if mode is None and not any(word in metric.lower() for word in ("loss", "error")):
        raise ConfigError(
            f"best_metric is {metric!r}, but best_mode is not given; give 'max' if "
            "more of it is better, 'min' if less is"
        )
    return mode or "min"
