"""Filters of TensorFlow's deprecation warnings, and of absl's copies of log lines.

TensorFlow reports everything that Estimators are built from as deprecated, and a
program that stays with Estimators can do nothing about that. These warnings are left
out and counted, whoever calls what is deprecated. In a program that starts with
`tf.compat.v1.app.run` or `absl.app.run`, absl's handler repeats each line of the
handler of TensorFlow's logger; the repetition is left out. Every other line, of any
level, passes unchanged.

Nothing here imports TensorFlow, because the filters are installed before it is.
"""

import glob
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from estimator_runtime import reporting
from estimator_runtime.config.options import OPTIONS, parse_switch
from estimator_runtime.output.terminal import write_error

VARIABLE = "ESTIMATOR_RUNTIME_VERBOSE"
NATIVE_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ERRORS = "2"
# The kinds of devices that TensorFlow makes (device_factory.cc).
DEVICE_TYPES = "TF_ENABLED_DEVICE_TYPES"
# Files of NVIDIA's drivers (the device files appear when CUDA is first used), of AMD's,
# of either under WSL, and of TPUs.
_GPUS = (
    "/dev/nvidia[0-9]*",
    "/proc/driver/nvidia",
    "/dev/nvhost*",
    "/dev/kfd",
    "/dev/dxg",
    "/dev/accel*",
    "/dev/vfio/[0-9]*",
)
# The folder for drivers of other vendors' devices, beside TensorFlow's.
_PLUGINS = "tensorflow-plugins"
# How the messages of tensorflow/python/util/deprecation.py begin, before the caller,
# the subject and its module are filled in. Then what programs cannot change: a warning
# of `tf.compat.v1.metrics.auc`, whose argument canned Estimators set, and one of
# TensorFlow's coordinator about a default of `train_and_evaluate`. Last, the
# warning that is logged when a training is stopped before its first step, which blames
# the input for it.
_LEFT_OUT = (
    "From %s: %s (from %s) is deprecated and will be removed %s.\n",
    "From %s: calling %s (from %s) with %s",
    "From %s: The name %s is deprecated.",
    "Please fix your imports. Module %s has been moved to %s.",
    "Trapezoidal rule is known to produce incorrect PR-AUCs",
    "`eval_strategy` is not passed in. No distribution strategy ",
    "Training with estimator made no steps. ",
)
# What Python's `warnings` leave out: how Keras 2 warns of what Estimator models are
# made of, and how a dataset warns a strategy that asks for its options in a graph.
HIDDEN_WARNINGS = (
    r"`(tf|layer|Model)\.[\w.]+` (is deprecated and|will be removed) "
    r"|To make it possible to preserve tf\.data options across "
)


def is_verbose(environ: Mapping[str, str]) -> bool:
    """Return whether every line is to be shown.

    Raises:
        ConfigError: If the variable has an invalid value.
    """
    purpose = "to see every line of TensorFlow's"
    return VARIABLE in environ and parse_switch(environ[VARIABLE], VARIABLE, purpose)


def has_gpu(patterns: Iterable[str] = _GPUS) -> bool:
    """Return whether there is a file of a GPU's or a TPU's driver.

    Args:
        patterns: Glob patterns of such files.
    """
    return any(map(glob.glob, patterns))


def set_native_level(environ: MutableMapping[str, str]) -> None:
    """Make TensorFlow's C++ code log errors only, unless the user chose a level.

    On a machine without a GPU, TensorFlow does not look for one either, which it would
    log as an error (`failed call to cuInit`). On one with a GPU, its lines show how it
    uses the GPU, and stay. Call this before TensorFlow is imported: it reads both once.

    Raises:
        ConfigError: If ESTIMATOR_RUNTIME_VERBOSE has an invalid value.
    """
    if not is_verbose(environ) and not has_gpu():
        environ.setdefault(NATIVE_LEVEL, _ERRORS)
        if not any(os.path.isdir(os.path.join(each, _PLUGINS)) for each in sys.path):
            environ.setdefault(DEVICE_TYPES, "CPU")


class DeprecationFilter(logging.Filter):
    """Leaves out the deprecation warnings of TensorFlow's, and counts them.

    Attributes:
        count: The number of records left out so far.
    """

    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes, and count it if not."""
        if not str(record.msg).startswith(_LEFT_OUT):
            return True
        self.count += 1
        reporting.send(hidden=1)
        return False


def _leave_out_copies(absl_logging: Any) -> None:
    """Make absl's handler leave out what the handler of TensorFlow's logger writes."""
    of_absl = absl_logging.get_absl_handler().python_handler

    def is_new(record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] != "tensorflow" or not any(
            isinstance(each, logging.StreamHandler) and each.stream == of_absl.stream
            for each in logging.getLogger("tensorflow").handlers
        )

    of_absl.addFilter(is_new)


def _format_marked(handler: Any, record: logging.LogRecord) -> str:
    """Return the text of a record; on a standard stream, its further lines are marked.

    What other handlers of the program write, such as to a file, is not changed.
    """
    text = logging.Handler.format(handler, record)
    stream = getattr(handler, "stream", None)
    standard = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    is_marked = stream is not None and stream in standard
    return text.replace("\n", "\n\t") if is_marked else text


_installed: DeprecationFilter | None = None


def start(environ: Mapping[str, str]) -> None:
    """Install the filters, unless every line is to be shown.

    In a task of a job, mark the lines that continue a message on standard error or
    output by a tab. So the launcher, which shows messages by their level, knows where a
    message ends.

    Raises:
        ConfigError: If the variable has an invalid value.
    """
    if reporting.is_on():
        logging.StreamHandler.format = _format_marked  # type: ignore[assignment, method-assign]
    if _installed is None and not is_verbose(environ):
        _install()


def _install() -> None:
    import wrapt  # here, so that --help does not need it

    global _installed
    _installed = DeprecationFilter()
    # A logger's filters see only its own records, and not those of its children.
    logging.getLogger("tensorflow").addFilter(_installed)
    warnings.filterwarnings("ignore", HIDDEN_WARNINGS)
    wrapt.when_imported("absl.logging")(_leave_out_copies)


def start_in_library(
    environ: MutableMapping[str, str], quiet: bool | None = None
) -> None:
    """Install the filter in a process that the command has not started.

    A notebook whose warnings are left out gets no other log lines either that a cell
    does not need: see `_quieten_notebook`.

    Args:
        environ: The environment variables of this process.
        quiet: Whether to leave out the deprecation warnings. None: as
            ESTIMATOR_RUNTIME_VERBOSE says, and without it in notebooks only.

    Raises:
        ConfigError: If the variable has an invalid value.
    """
    is_notebook = "ipykernel" in sys.modules
    if quiet is None:
        is_asked_for = VARIABLE in environ or is_notebook
        quiet = is_asked_for and not is_verbose(environ)
    if _installed is None and quiet:
        _install()
        if is_notebook:
            _quieten_notebook(environ)


def _quieten_notebook(environ: MutableMapping[str, str]) -> None:
    """Make a bar of what a training logs in a notebook.

    There TensorFlow logs at level INFO by itself, in 40 lines for a training of 1,000
    steps. A program that sets the verbosity after this call sees them.
    """
    import wrapt

    def leave_out_info(tensorflow: Any) -> None:
        logger = tensorflow.get_logger()
        if logger.level == logging.INFO:
            logger.setLevel(logging.WARNING)

    wrapt.when_imported("tensorflow")(leave_out_info)
    environ.setdefault(OPTIONS["progress"].variable, "auto")
    set_native_level(environ)


def report_hidden() -> None:
    """Report on standard error how many lines were left out since the last call.

    Nothing is written if there were none. A task under a launcher writes nothing
    either, because the launcher reports for all of its tasks.
    """
    if reporting.is_on() or _installed is None:
        return
    hidden, _installed.count = _installed.count, 0
    if hidden:
        write_error(f"estimator-runtime: {summary(hidden)}\n")


def summary(hidden: int) -> str:
    """Return a line that says how many warnings were left out, and how to show them."""
    noun = "warning" if hidden == 1 else "warnings"
    return f"left out {hidden} deprecation {noun} of TensorFlow's; --verbose shows them"
