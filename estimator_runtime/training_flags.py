"""The options of `estimator-runtime run` for the training itself."""

import argparse

from estimator_runtime.errors import ConfigError
from estimator_runtime.options import (
    ASYNC_CHECKPOINT_VARIABLE,
    CHECKPOINT_OVERHEAD_VARIABLE,
    STEPS_PER_RUN_VARIABLE,
    TrainingOptions,
    parse_checkpoint_overhead,
    parse_steps_per_run,
)


def add_options(parser):
    """Add the options of the training to those of `run`."""
    parser.add_argument(
        "--steps-per-run",
        metavar="K",
        type=_option(parse_steps_per_run),
        help="train up to K steps (or: auto) in one call of the session, with the same "
        "results; hooks act at the same steps",
    )
    parser.add_argument(
        "--async-checkpoint",
        action=argparse.BooleanOptionalAction,
        help="train on while a checkpoint is written, as by default, or wait for each",
    )
    parser.add_argument(
        "--checkpoint-overhead",
        metavar="PART",
        type=_option(parse_checkpoint_overhead),
        help="let the interval of checkpoints follow their cost, so that they take at "
        "most this part of the time, such as 0.01",
    )


def carry(options, environ):
    """Leave the options where the script's sessions, and those of its children, look.

    Raises:
        ConfigError: If one that was there before has a value that cannot be used.
    """
    if options.steps_per_run is not None:
        environ[STEPS_PER_RUN_VARIABLE] = str(options.steps_per_run)
    if options.async_checkpoint is not None:
        environ[ASYNC_CHECKPOINT_VARIABLE] = str(int(options.async_checkpoint))
    if options.checkpoint_overhead is not None:
        environ[CHECKPOINT_OVERHEAD_VARIABLE] = str(options.checkpoint_overhead)
    TrainingOptions.from_environ(environ)


def _option(parse):
    def parsed(text):
        try:
            return parse(text, "it")
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed
