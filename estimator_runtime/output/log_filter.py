"""Filters of warnings of TensorFlow's that a program cannot act on, and absl's copies.

TensorFlow reports everything that Estimators are built from as deprecated: the
Estimator itself, and the hooks that the frozen package and this one have to use. The
warnings on the list below are left out and counted. In a program that starts with
`tf.compat.v1.app.run` or `absl.app.run`, absl's handler repeats each line of the
handler of TensorFlow's logger; the repetition is left out. Every other line, of any
level, passes unchanged.

Nothing here imports TensorFlow, because the filters are installed before it is.
"""

import contextlib
import glob
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, MutableMapping
from types import FrameType
from typing import Any

from estimator_runtime import reporting
from estimator_runtime.config.options import OPTIONS, parse_switch

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
# the subject and its module are filled in.
_NOTICE = "From %s: %s (from %s) is deprecated and will be removed %s.\n"
_NOTICE_OF_ARGUMENT = "From %s: calling %s (from %s) with %s"
# How the warning of `tf.compat.v1.metrics.auc` begins, whose argument canned Estimators
# do not leave to the program.
_TRAPEZOIDAL_RULE = "Trapezoidal rule is known to produce incorrect PR-AUCs"
# How TensorFlow's coordinator warns of a default of `train_and_evaluate`.
_NO_EVAL_STRATEGY = "`eval_strategy` is not passed in. No distribution strategy "
# How a dataset warns a strategy that asks it for its options.
_GRAPH_OPTIONS = "To make it possible to preserve tf.data options across "
# How Keras 2 warns, by Python's `warnings`, of what Estimator models are made of.
_OLD_LAYERS = re.compile(
    r"`(?:tf\.layers\.\w+|tf\.nn\.rnn_cell\.\w+|layer\.apply)` is deprecated and "
)
# How it warns of what the frozen package calls to build a Keras model.
_OLD_KERAS = re.compile(
    r"`(?:tf\.keras\.backend\.set_learning_phase|Model\.state_updates)` "
)
# Packages that may be between that call and the warning.
_BETWEEN = {
    *("estimator_runtime", "keras", "logging", "tensorflow", "tf_keras", "warnings")
}
# Modules whose classes and functions only Estimators use, whoever calls them. Those of
# the third are `tf.estimator.export.PredictOutput` and its like.
_SUBJECTS_OF_ESTIMATORS = (
    "tensorflow_estimator.",
    "tensorflow.python.feature_column.",
    "tensorflow.python.saved_model.model_utils.export_output",
)
# Packages whose calls a program cannot replace, whatever they call.
_FROZEN_CALLERS = ("tensorflow_estimator", "estimator_runtime", "tf_keras", "keras")
# Modules that TensorFlow itself may call: sessions, savers, strategies, exports, ...
_SUBJECTS_OF_TENSORFLOW = (
    "tensorflow.python.checkpoint.",
    "tensorflow.python.distribute.",
    "tensorflow.python.training.",
    "tensorflow.python.lib.io.",
    "tensorflow.python.saved_model.",
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
    """Leaves out the records that are on the list, and counts them.

    Attributes:
        count: The number of records left out so far.
    """

    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes, and count it if not."""
        if not is_hidden(record):
            return True
        self.add()
        return False

    def add(self) -> None:
        """Count a warning that is left out."""
        self.count += 1
        reporting.send(hidden=1)


def is_hidden(record: logging.LogRecord) -> bool:
    """Return whether a record is a warning that no program can act on."""
    if str(record.msg).startswith((_TRAPEZOIDAL_RULE, _NO_EVAL_STRATEGY)):
        return _is_called_by_estimators()
    if not _is_notice(record):
        return False
    file, subject = _caller(record), str(record.args[2])  # type: ignore[index]
    if subject.startswith(_SUBJECTS_OF_ESTIMATORS):
        return True
    if any(_is_in(file, package) for package in _FROZEN_CALLERS):
        return True
    return subject.startswith(_SUBJECTS_OF_TENSORFLOW) and _is_in(file, "tensorflow")


def _is_called_by_estimators() -> bool:
    """Return whether the frozen package has called TensorFlow or Keras, which warns."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if _is_in(frame.f_code.co_filename, "tensorflow_estimator"):
            return True
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] not in _BETWEEN:
            return False
        frame = frame.f_back
    return False


def _is_notice(record: logging.LogRecord) -> bool:
    """Return whether a record is a deprecation warning of TensorFlow's."""
    return (
        record.levelno == logging.WARNING
        and isinstance(record.args, tuple)
        and str(record.msg).startswith((_NOTICE, _NOTICE_OF_ARGUMENT))
    )


def _caller(record: logging.LogRecord) -> str:
    """Return the file that a deprecation warning names as its caller."""
    return str(record.args[0]).rpartition(":")[0]  # type: ignore[index]


def _is_in(file: str, package: str) -> bool:
    module = sys.modules.get(package)
    origin = getattr(module, "__file__", None)
    return origin is not None and file.startswith(os.path.dirname(origin) + os.sep)


def _leave_out_copies(absl_logging: Any) -> None:
    """Make absl's handler leave out what the handler of TensorFlow's logger writes."""
    of_absl = absl_logging.get_absl_handler().python_handler

    def is_new(record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] != "tensorflow" or not any(
            isinstance(each, logging.StreamHandler) and each.stream == of_absl.stream
            for each in logging.getLogger("tensorflow").handlers
        )

    of_absl.addFilter(is_new)


def leave_out_old_layers(counter: DeprecationFilter) -> None:
    """Leave out the warnings of Python's `warnings` that are on the list."""
    show = warnings.showwarning

    def show_others(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        text = str(message)
        is_of_estimators = text.startswith(_GRAPH_OPTIONS) or _OLD_KERAS.match(text)
        if _OLD_LAYERS.match(text) or (is_of_estimators and _is_called_by_estimators()):
            counter.add()
        else:
            show(message, *args, **kwargs)

    warnings.showwarning = show_others


class _OwnFilter(logging.Filter):
    """Leaves out the deprecation warnings about calls that this package makes."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (_is_notice(record) and _is_in(_caller(record), "estimator_runtime"))


_installed: DeprecationFilter | None = None


def start(environ: Mapping[str, str]) -> None:
    """Install the filters, unless every line is to be shown.

    Raises:
        ConfigError: If the variable has an invalid value.
    """
    if _installed is None and not is_verbose(environ):
        _install()


def _install() -> None:
    import wrapt  # here, so that --help does not need it

    global _installed
    _installed = DeprecationFilter()
    # A logger's filters see only its own records, and not those of its children.
    logging.getLogger("tensorflow").addFilter(_installed)
    leave_out_old_layers(_installed)
    wrapt.when_imported("absl.logging")(_leave_out_copies)


def start_in_library(
    environ: MutableMapping[str, str], quiet: bool | None = None
) -> None:
    """Install the filter in a process that the command has not started.

    A notebook whose warnings are left out gets no other log lines either that a cell
    does not need: see `_quieten_notebook`.

    Args:
        environ: The environment variables of this process.
        quiet: Whether to leave out the warnings on the list. None: as
            ESTIMATOR_RUNTIME_VERBOSE says, and without it in notebooks only. Warnings
            about this package's own calls are left out unless the variable is 1.

    Raises:
        ConfigError: If the variable has an invalid value.
    """
    is_notebook = "ipykernel" in sys.modules
    if quiet is None:
        is_asked_for = VARIABLE in environ or is_notebook
        quiet = is_asked_for and not is_verbose(environ)
    logger = logging.getLogger("tensorflow")
    if _installed is None and quiet:
        _install()
        if is_notebook:
            _quieten_notebook(environ)
    elif not (
        _installed is not None
        or is_verbose(environ)
        or any(isinstance(each, _OwnFilter) for each in logger.filters)
    ):
        logger.addFilter(_OwnFilter())


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
        # The program may have closed standard error.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"estimator-runtime: {summary(hidden)}\n")


def summary(hidden: int) -> str:
    """Return a line that says how many warnings were left out, and how to show them."""
    noun = "warning" if hidden == 1 else "warnings"
    return f"left out {hidden} {noun} about Estimator internals; --verbose shows them"
