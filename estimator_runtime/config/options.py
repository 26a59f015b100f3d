"""What this runtime offers beyond TensorFlow's signatures: the options of training.

`TrainingOptions` is the table of them. Each field has one name as RunConfig argument,
flag and environment variable, which win in that order; what it may be; and what the
command's help says. Options reach the session in a context variable, because
TensorFlow's signatures have no place for them.
"""

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from estimator_runtime.errors import ConfigError, ConfigTypeError

# Both take a value and where it came from, which the message of an error names.
Check = Callable[[Any, str], None]
FromText = Callable[[str, str], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """How one option of training is given, and what it may be.

    Attributes:
        name: The name of the argument of RunConfig.
        check: Raises a ConfigError, or a ConfigTypeError, if a value cannot be used.
        from_text: Converts a text, without the check.
        help: What `run --help` says of it.
        metavar: The name of its value there.
        choices: All values that a text may have; empty if there is no list.
        is_switch: Whether it is True or False.
    """

    name: str
    check: Check
    from_text: FromText
    help: str
    metavar: str | None
    choices: tuple[str, ...]
    is_switch: bool

    @property
    def flag(self) -> str:
        """The flag of `estimator-runtime run`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"ESTIMATOR_RUNTIME_{self.name.upper()}"

    def parse(self, text: str, source: str) -> Any:
        """Return the value that a text stands for.

        Raises:
            ConfigError: If there is none; the message names `source`.
        """
        value = self.from_text(text, source)
        self.check(value, source)
        return value

    def in_environ(self, environ: Mapping[str, str] = os.environ) -> Any:
        """Return the value that the environment has; None if it has none.

        Raises:
            ConfigError: If it cannot be used.
        """
        if self.variable not in environ:
            return None
        return self.parse(environ[self.variable], self.variable)


def parse_switch(text: str, source: str, purpose: str) -> bool:
    """Return whether a text is 1, and not 0.

    Args:
        text: The text.
        source: Who gave it.
        purpose: What 1 is for, as in "to see every line".

    Raises:
        ConfigError: If it is neither.
    """
    if text not in ("0", "1"):
        raise ConfigError(f"{source} is {text!r}; give 1 {purpose}, or 0")
    return text == "1"


def _check_type(value: Any, source: str, types: Any, remedy: str) -> None:
    if isinstance(value, str) and types is not str:  # of the environment
        raise ConfigError(f"{source} is {value!r}; {remedy}")
    if isinstance(value, bool) or not isinstance(value, types):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); {remedy}"
        )


def _check_choice(choices: tuple[str, ...]) -> Check:
    def check(value: Any, source: str) -> None:
        if value not in choices:
            raise ConfigError(f"{source} is {value!r}; give {', '.join(choices)}")

    return check


def _check_steps_per_run(value: Any, source: str) -> None:
    remedy = 'give a whole number of steps, 1 or more, or "auto"'
    if value == "auto":
        return
    _check_type(value, source, int, remedy)
    if value < 1:
        raise ConfigError(f"{source} is {value}; {remedy}")


def _check_async_checkpoint(value: Any, source: str) -> None:
    if not isinstance(value, bool):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); give True to write "
            "checkpoints while training goes on, or False"
        )


def _check_reuse_graphs(value: Any, source: str) -> None:
    if not isinstance(value, bool):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); give True to keep graphs "
            "from one evaluation, prediction or export to the next, or False"
        )


def _check_checkpoint_overhead(value: Any, source: str) -> None:
    remedy = "give the part of the time that checkpoints may take, such as 0.01"
    _check_type(value, source, (int, float), remedy)
    if not 0 < value < 1:
        raise ConfigError(f"{source} is {value!r}, not between 0 and 1; {remedy}")


def _check_keep_best(value: Any, source: str) -> None:
    remedy = "give how many of the best checkpoints to keep, or 0 for none"
    _check_type(value, source, int, remedy)
    if value < 0:
        raise ConfigError(f"{source} is {value}; {remedy}")


def _check_best_metric(value: Any, source: str) -> None:
    remedy = "give the name of a metric of the evaluation, such as 'loss'"
    _check_type(value, source, str, remedy)
    if not value:
        raise ConfigError(f"{source} is ''; {remedy}")


def _check_best_mode(value: Any, source: str) -> None:
    if value not in ("min", "max"):
        raise ConfigError(
            f"{source} is {value!r}; give 'min' if less of the metric is better, 'max' "
            "if more is"
        )


def _async_checkpoint(text: str, source: str) -> bool:
    return parse_switch(text, source, "to write checkpoints while training goes on")


def _reuse_graphs(text: str, source: str) -> bool:
    return parse_switch(
        text, source, "to evaluate and predict with graphs that are kept"
    )


def _steps_or_text(text: str, source: str) -> int | str:
    return int(text) if text.strip().isascii() and text.strip().isdigit() else text


def _number_or_text(kind: Callable[[str], float]) -> FromText:
    def number_or_text(text: str, source: str) -> float | str:
        try:
            return kind(text)
        except ValueError:
            return text

    return number_or_text


def _text(text: str, source: str) -> str:
    return text


def _option(
    default: Any,
    check: Check | None = None,
    *,
    help: str,
    from_text: FromText = _text,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Return a field of `TrainingOptions`; see `Option`.

    Args:
        default: The value where nobody gives one; a None is not checked.
        check: None for one of `choices`.
        help: See `Option`, as the others.
        from_text: By default the text itself.
        metavar: None for an option that has `choices`, or is a switch.
        choices: None for any text that passes the check.
    """
    described = {
        "check": check or _check_choice(choices),
        "from_text": from_text,
        "help": help,
        "metavar": metavar,
        "choices": choices,
        "is_switch": isinstance(default, bool),
    }
    return dataclasses.field(default=default, metadata=described)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training session.

    Attributes:
        loop: What runs the steps: "auto", all of this package's step loop; "plans",
            the same but for several steps in one call; "stock", TensorFlow's own.
        steps_per_run: The most training steps in one call of the session: 1 or more,
            or "auto".
        async_checkpoint: Whether checkpoints are written while training goes on.
        checkpoint_overhead: Fraction of the wall time that checkpoints may take, where
            no interval is given; None leaves the interval as it is.
        keep_best: How many of the best checkpoints to keep beside the newest; 0 for
            none.
        best_metric: Metric of the evaluation that says which are the best, or None.
        best_mode: "max" if more of it is better, "min" if less is; None for "min" if
            its name has "loss" or "error" in it.
        reuse_graphs: Whether an Estimator keeps the graph and the session with which it
            evaluates, predicts or exports for its next call.
        progress: How the progress of a process on its own is shown: "bar", "plain",
            "none", or "auto", a bar on a terminal and in a notebook, else lines.
    """

    loop: str = _option(
        "auto",
        choices=("auto", "plans", "stock"),
        help="what runs the steps: this package's loop (auto, the default), the same "
        "without --steps-per-run (plans), or TensorFlow's own (stock), to compare",
    )
    steps_per_run: int | str = _option(
        1,
        _check_steps_per_run,
        from_text=_steps_or_text,
        metavar="K",
        help="train up to K steps (or: auto) in one call of the session, with the same "
        "results; hooks act at the same steps",
    )
    async_checkpoint: bool = _option(
        True,
        _check_async_checkpoint,
        from_text=_async_checkpoint,
        help="train on while a checkpoint is written, as by default, or wait for each",
    )
    checkpoint_overhead: float | None = _option(
        None,
        _check_checkpoint_overhead,
        from_text=_number_or_text(float),
        metavar="FRACTION",
        help="let the interval of checkpoints follow their cost, so that they take at "
        "most this fraction of the time, such as 0.01",
    )
    keep_best: int = _option(
        0,
        _check_keep_best,
        from_text=_number_or_text(int),
        metavar="N",
        help="of the checkpoints that train_and_evaluate evaluates, keep the N best in "
        "the folder 'best' of the model directory",
    )
    best_metric: str | None = _option(
        None,
        _check_best_metric,
        metavar="NAME",
        help="metric that says which are the best, such as loss",
    )
    best_mode: str | None = _option(
        None,
        _check_best_mode,
        choices=("min", "max"),
        help="whether less or more of it is better; min if it is a loss or an error",
    )
    reuse_graphs: bool = _option(
        False,
        _check_reuse_graphs,
        from_text=_reuse_graphs,
        help="evaluate, predict and export with a graph and session that are kept from "
        "one call to the next, with the same results, or (the default) build them anew",
    )
    progress: str = _option(
        "none",
        choices=("auto", "bar", "plain", "none"),
        help="how far the training is, of one process or of a cluster: a bar, a line "
        "each 10 s, or nothing (default: auto, a bar on a terminal, else lines)",
    )

    def __post_init__(self) -> None:
        """Check the values."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                field.metadata["check"](value, field.name)
        if self.keep_best and self.best_metric is None:
            raise ConfigError(
                f"keep_best is {self.keep_best}, but best_metric is not given; name "
                "the metric of the evaluation that says which checkpoints are the best"
            )
        if self.keep_best and self.best_metric is not None:
            best_mode_of(self.best_metric, self.best_mode)

    @classmethod
    def of(cls, config: Any) -> "TrainingOptions":
        """Return the options of a config.

        Those of the frozen package, and of TPU's, have none: the environment's.

        Raises:
            ConfigError: As `from_environ`.
        """
        own = getattr(config, "training_options", None)
        return own if isinstance(own, cls) else cls.from_environ()

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str] = os.environ, **given: Any
    ) -> "TrainingOptions":
        """Return the options that the command's flags left in the environment.

        Args:
            environ: The environment; that of this process by default.
            **given: Options by name that it has no say in.

        Raises:
            ConfigError: If one has a value that cannot be used, or would be ignored.
        """
        found = {
            name: option.in_environ(environ)
            for name, option in OPTIONS.items()
            if option.variable in environ and name not in given
        }
        chosen = {**found, **given}
        # keep_best=0 says that none is wanted; left out, it was forgotten.
        for name in ("best_metric", "best_mode"):
            if chosen.get(name) is not None and "keep_best" not in chosen:
                raise ConfigError(
                    f"{name} is {chosen[name]!r}, but keep_best is not given; give how "
                    f"many of the best checkpoints to keep, or leave {name} out"
                )
        return cls(**chosen)


OPTIONS = {
    field.name: Option(name=field.name, **field.metadata)
    for field in dataclasses.fields(TrainingOptions)
}

_current: contextvars.ContextVar[TrainingOptions | None] = contextvars.ContextVar(
    "estimator_runtime_training_options", default=None
)


def current() -> TrainingOptions:
    """Return the options of the training under way; else those of the environment."""
    return _current.get() or TrainingOptions.from_environ()


@contextlib.contextmanager
def use(options: TrainingOptions) -> Iterator[None]:
    """Use `options` for the sessions that are made in this context."""
    token = _current.set(options)
    try:
        yield
    finally:
        _current.reset(token)


def best_mode_of(metric: str, mode: str | None) -> str:
    """Return "max" if more of a metric is better, "min" if less is.

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


class OwnOptions:
    """The options that are given to a RunConfig; the rest the environment has.

    It has a property for each option, by its name.
    """

    _own_options: Mapping[str, Any] = {}

    @property
    def training_options(self) -> TrainingOptions:
        """`TrainingOptions` of the sessions that train with this config."""
        return TrainingOptions.from_environ(**self._own_options)

    def _set_options(self, options: Mapping[str, Any]) -> None:
        """Set options by name; None leaves one to the command and the environment."""
        for name, value in options.items():
            if value is not None:
                OPTIONS[name].check(value, f"RunConfig: {name}")
        merged = {**self._own_options, **options}
        own = {n: v for n, v in merged.items() if v is not None}
        TrainingOptions.from_environ(**own)  # refuses what does not go together
        self._own_options = own


def _property(option: Option) -> property:
    return property(
        lambda self: getattr(self.training_options, option.name), doc=option.help
    )


for _each in OPTIONS.values():
    setattr(OwnOptions, _each.name, _property(_each))
