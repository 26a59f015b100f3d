"""A log filter for deprecation warnings that a program cannot act on.

TensorFlow reports everything that Estimators are built from as deprecated: the
Estimator itself, and the hooks that the frozen package and this one have to use. The
warnings on the list below are left out and counted. Every other line, of any level,
passes unchanged.

Standard library only, because the filter is installed before TensorFlow is imported.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Mapping

from estimator_runtime import reporting
from estimator_runtime.config.options import parse_switch

VARIABLE = "ESTIMATOR_RUNTIME_VERBOSE"
# How the messages of tensorflow/python/util/deprecation.py begin, before the caller,
# the subject and its module are filled in.
_NOTICE = "From %s: %s (from %s) is deprecated and will be removed %s.\n"
_NOTICE_OF_ARGUMENT = "From %s: calling %s (from %s) with %s"
_SUBJECT_OF_ESTIMATORS = "tensorflow_estimator."
# Packages whose calls a program cannot replace, whatever they call.
_FROZEN_CALLERS = ("tensorflow_estimator", "estimator_runtime", "tf_keras", "keras")
# Modules that TensorFlow itself may call: sessions, savers, hooks, feature columns,
# exports, event files.
_SUBJECTS_OF_TENSORFLOW = (
    "tensorflow.python.checkpoint.",
    "tensorflow.python.training.",
    "tensorflow.python.feature_column.",
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
        self.count += 1
        reporting.send(folded=1)
        return False


def is_hidden(record: logging.LogRecord) -> bool:
    """Return whether a record is a deprecation warning that no program can act on."""
    if record.levelno != logging.WARNING or not isinstance(record.args, tuple):
        return False
    if not str(record.msg).startswith((_NOTICE, _NOTICE_OF_ARGUMENT)):
        return False
    caller, _, subject = map(str, record.args[:3])
    file = caller.rpartition(":")[0]
    if subject.startswith(_SUBJECT_OF_ESTIMATORS):
        return True
    if any(_is_in(file, package) for package in _FROZEN_CALLERS):
        return True
    return subject.startswith(_SUBJECTS_OF_TENSORFLOW) and _is_in(file, "tensorflow")


def _is_in(file: str, package: str) -> bool:
    module = sys.modules.get(package)
    origin = getattr(module, "__file__", None)
    return origin is not None and file.startswith(os.path.dirname(origin) + os.sep)


_installed: DeprecationFilter | None = None


def start(environ: Mapping[str, str]) -> None:
    """Install the filter, unless every line is to be shown.

    Raises:
        ConfigError: If the variable has an invalid value.
    """
    global _installed
    if _installed is None and not is_verbose(environ):
        _installed = DeprecationFilter()
        # A logger's filters see only its own records, and not those of its children.
        logging.getLogger("tensorflow").addFilter(_installed)


def tell() -> None:
    """Report on standard error how many warnings were left out since the last call.

    Nothing is written if there were none. A task under a launcher writes nothing
    either, because the launcher reports for all of its tasks.
    """
    if _installed is not None and _installed.count and not reporting.is_on():
        count, _installed.count = _installed.count, 0
        # The program may have closed standard error.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"estimator-runtime: {summary(count)}\n")


def summary(warnings: int, start_lines: int = 0) -> str:
    """Return one line that says what was left out, and how to show it.

    Args:
        warnings: The number of deprecation warnings.
        start_lines: The number of TensorFlow's startup lines.
    """
    parts = []
    if warnings:
        noun = "warning" if warnings == 1 else "warnings"
        parts.append(f"{warnings} deprecation {noun} about what Estimators are made of")
    if start_lines:
        noun = "line" if start_lines == 1 else "lines"
        parts.append(f"{start_lines} {noun} of TensorFlow's start")
    return f"left out {' and '.join(parts)}; --verbose shows them"
