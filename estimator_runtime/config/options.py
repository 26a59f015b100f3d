"""The options of training that this runtime adds to TensorFlow's.

`TrainingOptions` is the table of them. Each option has one name as RunConfig argument,
flag and environment variable, which win in that order. Options reach the session in a
context variable, because TensorFlow's signatures have no place for them.
"""

import contextlib
import contextvars
import dataclasses
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from estimator_runtime.errors import ConfigError, ConfigTypeError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """How one option of training is given, and which values it may have.

    Attributes:
        name: The name of the argument of RunConfig.
        help: What `run --help` says about it.
        remedy: What to give instead of an invalid value, for errors.
        types: The types that a value may have.
        is_valid: Returns whether a value of these types can be used.
        convert: Converts a text to a value. The text is the value if this raises a
            ValueError.
        metavar: The name of its value in `run --help`.
        choices: All valid texts; empty if there is no such list.
        purpose: For a switch, what it is on for, as in "to see every line".
    """

    name: str
    help: str
    remedy: str = ""
    types: tuple[type, ...] = (bool, object)
    is_valid: Callable[[Any], bool] = lambda value: True
    convert: Callable[[str], Any] = str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    purpose: str = ""

    @property
    def flag(self) -> str:
        """The flag of `estimator-runtime run`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"ESTIMATOR_RUNTIME_{self.name.upper()}"

    @property
    def is_switch(self) -> bool:
        """Whether it is True or False."""
        return bool(self.purpose)

    def check(self, value: Any, source: str) -> None:
        """Check a value that `source` gave.

        Raises:
            ConfigTypeError: If it has the wrong type.
            ConfigError: If it cannot be used for another reason.
        """
        # A bool is an int too, but never a number that somebody meant.
        kind = type(value)
        if not (kind in self.types if kind is bool else isinstance(value, self.types)):
            remedy = self.remedy or f"give True {self.purpose}, or False"
            raise ConfigTypeError(f"{source} is {value!r} ({kind.__name__}); {remedy}")
        if not self.is_valid(value) or (self.choices and value not in self.choices):
            remedy = self.remedy or f"give {', '.join(self.choices)}"
            raise ConfigError(f"{source} is {value!r}; {remedy}")

    def parse(self, text: str, source: str) -> Any:
        """Return the value that a text stands for.

        Raises:
            ConfigError: If there is none; the message names `source`.
        """
        if self.is_switch:
            return parse_switch(text, source, self.purpose)
        value: Any = text
        with contextlib.suppress(ValueError):
            value = self.convert(text)
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


def _whole_number(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()):
        raise ValueError(text)
    return int(text)


def _at_least(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and value >= least


def _option(default: Any, **described: Any) -> Any:
    """Return a field of `TrainingOptions`, described by the attributes of `Option`."""
    return dataclasses.field(default=default, metadata=described)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training session. RunConfig describes them in full."""

    loop: str = _option(
        "auto",
        choices=("auto", "plans", "stock"),
        help="what runs the steps: this package's loop (auto, the default), the same "
        "with each step by itself (plans), or TensorFlow's own (stock), to compare",
    )
    # The only place that has the default. A session that the program opens itself has
    # 1: see `current`.
    steps_per_run: int | str = _option(
        "auto",
        types=(int, str),
        is_valid=lambda value: value == "auto" or _at_least(1)(value),
        remedy='give a whole number of steps, 1 or more, or "auto"',
        convert=_whole_number,
        metavar="K",
        help="train up to K steps in one call of the session, with the same results; "
        "hooks act at the same steps (default: auto, as many as no hook has to see; 1 "
        "runs each step by itself)",
    )
    pack_transfers: bool | None = _option(
        None,
        types=(bool,),
        purpose="to send tensors between tasks as fewer and larger ones",
        help="with parameter servers, send the tensors of a step as fewer and larger "
        "ones (the default if several tasks train), or one by one",
    )
    async_checkpoint: bool = _option(
        True,
        types=(bool,),
        purpose="to write checkpoints while training goes on",
        help="go on training while a checkpoint is written (the default), or wait",
    )
    checkpoint_overhead: float | None = _option(
        None,
        types=(int, float, str),
        is_valid=lambda value: not isinstance(value, str) and 0 < value < 1,
        remedy="give the fraction of the time that checkpoints may take, more than 0 "
        "and less than 1, such as 0.01",
        convert=float,
        metavar="FRACTION",
        help="let the interval of checkpoints follow their cost, so that they take at "
        "most this fraction of the time, such as 0.01",
    )
    keep_best: int = _option(
        0,
        types=(int, str),
        is_valid=_at_least(0),
        remedy="give how many of the best checkpoints to keep, or 0 for none",
        convert=_whole_number,
        metavar="N",
        help="of the checkpoints that train_and_evaluate evaluates, keep the N best in "
        "the folder 'best' of the model directory",
    )
    best_metric: str | None = _option(
        None,
        types=(str,),
        is_valid=bool,
        remedy="give the name of a metric of the evaluation, such as 'loss'",
        metavar="NAME",
        help="metric by which checkpoints are the best, such as loss",
    )
    best_mode: str | None = _option(
        None,
        choices=("min", "max"),
        remedy="give 'min' if less of the metric is better, 'max' if more is",
        help="whether a lower or higher metric is better (default: min for a loss or "
        "an error)",
    )
    reuse_graphs: bool | str = _option(
        "auto",
        types=(bool, str),
        is_valid=lambda value: isinstance(value, bool) or value == "auto",
        remedy='give True, False or "auto"',
        purpose="to evaluate, predict and export with graphs that are kept",
        help="evaluate, predict and export with a graph and session that are kept from "
        "one call to the next, with the same results, or build them anew (default: "
        "keep those of TensorFlow's own Estimators that are made from data)",
    )
    progress: str = _option(
        "none",
        choices=("auto", "bar", "plain", "none"),
        help="show the progress of the training as a bar, as a line every 10 s "
        "(plain), or not at all (default: auto, a bar on a terminal, else lines)",
    )

    def __post_init__(self) -> None:
        """Check the values."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                OPTIONS[field.name].check(value, field.name)
        if self.keep_best:
            if self.best_metric is None:
                raise ConfigError(
                    f"keep_best is {self.keep_best}, but best_metric is not given; "
                    "name the metric of the evaluation that says which checkpoints are "
                    "the best, such as 'loss', in RunConfig or with --best-metric"
                )
            best_mode_of(self.best_metric, self.best_mode)

    @classmethod
    def of(cls, config: Any) -> "TrainingOptions":
        """Return the options of a config.

        A config of the frozen package, such as a TPU config, has none of its own, so
        its options are those of the environment.

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
            **given: Options by name, which override the environment.

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

_ANY_GRAPH = object()
_current: contextvars.ContextVar[tuple[TrainingOptions, Any] | None] = (
    contextvars.ContextVar("estimator_runtime_training_options", default=None)
)


def current(graph: Any) -> TrainingOptions:
    """Return the options of a session that is made for a graph.

    A session that trains another graph than the Estimator's, or without an Estimator,
    is one that the program opens. Its loop may count its calls of `run`, so a call is
    one step unless the environment says otherwise, whatever the default is.
    """
    found = _current.get()
    if found is None:
        return _of_own_session()
    options, trained = found
    if trained is graph or trained is _ANY_GRAPH:
        return options
    steps_per_run = _of_own_session().steps_per_run
    return dataclasses.replace(options, steps_per_run=steps_per_run)


def _of_own_session() -> TrainingOptions:
    """Return the options of a session that the program opens itself."""
    steps_per_run = OPTIONS["steps_per_run"].in_environ() or 1
    return TrainingOptions.from_environ(steps_per_run=steps_per_run)


@contextlib.contextmanager
def use(options: TrainingOptions, graph: Any = _ANY_GRAPH) -> Iterator[None]:
    """Use `options` for the sessions that are made in this context.

    Args:
        options: The options.
        graph: The graph of those that may run several steps in one call of `run`; None
            for none. Default: any.
    """
    token = _current.set((options, graph))
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
            f"best_metric is {metric!r}, but best_mode (--best-mode) is not given; "
            "give 'max' if more of it is better, 'min' if less is"
        )
    return mode or "min"


class OwnOptions:
    """The options of a RunConfig: its own, and for all others the environment's.

    It has a property for each option.
    """

    _own_options: Mapping[str, Any] = {}

    @property
    def training_options(self) -> TrainingOptions:
        """`TrainingOptions` of the sessions that train with this config."""
        return TrainingOptions.from_environ(**self._own_options)

    def _set_options(self, options: Mapping[str, Any]) -> None:
        """Set options by name; None leaves one to the command and the environment."""
        # A number of NumPy's counts as one of Python's.
        options = {
            name: value.item() if getattr(value, "size", 0) == 1 else value
            for name, value in options.items()
        }
        for name, value in options.items():
            if value is not None:
                OPTIONS[name].check(value, f"RunConfig: {name}")
        merged = {**self._own_options, **options}
        own = {n: v for n, v in merged.items() if v is not None}
        TrainingOptions.from_environ(**own)  # refuses what does not go together
        if own != self._own_options:  # else TensorFlow would log it in "Using config"
            self._own_options = own


for _each in OPTIONS.values():
    _get = operator.attrgetter(f"training_options.{_each.name}")
    setattr(OwnOptions, _each.name, property(_get, doc=_each.help))
