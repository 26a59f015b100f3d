"""Flags of `estimator-runtime run` for options of training; see `options`."""

import argparse

from estimator_runtime import folding, option_values, options, waits
from estimator_runtime.errors import ConfigError

# Name of each flag's value to the variable in which training finds it.
VARIABLES = {
    "loop": options.LOOP_VARIABLE,
    "steps_per_run": options.STEPS_PER_RUN_VARIABLE,
    "async_checkpoint": options.ASYNC_CHECKPOINT_VARIABLE,
    "checkpoint_overhead": options.CHECKPOINT_OVERHEAD_VARIABLE,
    "keep_best": options.KEEP_BEST_VARIABLE,
    "best_metric": options.BEST_METRIC_VARIABLE,
    "best_mode": options.BEST_MODE_VARIABLE,
    "progress": options.PROGRESS_VARIABLE,
    "verbose": folding.VARIABLE,
    "grace": waits.STOP_GRACE_VARIABLE,
}


def add_options(parser):
    """Add the flags to the parser of `run`."""
    group = parser.add_argument_group(
        "training",
        "Each can be given by a variable too, such as "
        f"{options.STEPS_PER_RUN_VARIABLE};\ndocs/environment.md lists them.",
    )
    group.add_argument(
        "--loop",
        choices=option_values.LOOPS,
        help="what runs the steps: this package's loop (auto, the default), the same "
        "without --steps-per-run (plans), or TensorFlow's own (stock), to compare",
    )
    group.add_argument(
        "--steps-per-run",
        metavar="K",
        type=_parsed_by(option_values.parse_steps_per_run),
        help="train up to K steps (or: auto) in one call of the session, with the same "
        "results; hooks act at the same steps",
    )
    group.add_argument(
        "--async-checkpoint",
        action=argparse.BooleanOptionalAction,
        help="train on while a checkpoint is written, as by default, or wait for each",
    )
    group.add_argument(
        "--checkpoint-overhead",
        metavar="PART",
        type=_parsed_by(option_values.parse_checkpoint_overhead),
        help="let the interval of checkpoints follow their cost, so that they take at "
        "most this part of the time, such as 0.01",
    )
    group.add_argument(
        "--keep-best",
        metavar="N",
        type=_parsed_by(option_values.parse_keep_best),
        help="of the checkpoints that train_and_evaluate evaluates, keep the N best in "
        "the folder 'best' of the model directory",
    )
    group.add_argument(
        "--best-metric",
        metavar="NAME",
        type=_parsed_by(option_values.parsed_by(option_values.check_best_metric)),
        help="metric that says which are the best, such as loss",
    )
    group.add_argument(
        "--best-mode",
        choices=("min", "max"),
        help="whether less or more of it is better; min if it is a loss or an error",
    )
    group.add_argument(
        "--progress",
        choices=option_values.PROGRESS_MODES,
        help="how far the training is, of one process or of a cluster: a bar, a line "
        "each 10 s, or nothing (default: auto, a bar on a terminal, else lines)",
    )
    group.add_argument(
        "--verbose",
        action="store_true",
        default=None,  # what the variable says
        help="show every line of TensorFlow's, also its deprecation warnings about "
        "what Estimators are made of, and what its C++ half says at its start",
    )
    group.add_argument(
        "--grace",
        metavar="SECS",
        type=_parsed_by(waits.seconds),
        help="what SIGTERM leaves a training for the end of its step (default: "
        f"{waits.STOP_GRACE_VARIABLE}, or 30); each task of a cluster, for its "
        "checkpoint too",
    )


def carry(flags, environ):
    """Put the flags that were given where sessions, and those of children, look.

    Args:
        flags: As parsed.
        environ: The environment; changed.

    Raises:
        ConfigError: If a variable cannot be used.
    """
    for name, variable in VARIABLES.items():
        value = getattr(flags, name)
        if value is not None:
            environ[variable] = str(int(value) if isinstance(value, bool) else value)
    environ.setdefault(options.PROGRESS_VARIABLE, "auto")
    check(environ)


def check(environ):
    """Check the variables that say how to train.

    Args:
        environ: The environment.

    Raises:
        ConfigError: If one cannot be used.
    """
    folding.is_verbose(environ)
    waits.check(environ)
    # Each by itself: the program may have the option that belongs to it, so whether all
    # go together is known where it makes a RunConfig or a session.
    for name in options.CHECKS:
        options.in_environ(name, environ)


def _parsed_by(parse):
    def parsed(text):
        try:
            return parse(text, "it")
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed
