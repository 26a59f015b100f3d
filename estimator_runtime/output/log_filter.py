"""Folds away the deprecation warnings that a program can do nothing about.

TensorFlow warns of everything that Estimators are made of: of the Estimator itself, and
of the hooks that the frozen package, and this one, have to use. What is on the list
below is left out and counted; every other line, of whatever level, passes as it is.

Standard library only: it is there before TensorFlow is imported.
"""

import contextlib
import logging
import os
import sys

from estimator_runtime import option_values, reporting

VARIABLE = "ESTIMATOR_RUNTIME_VERBOSE"
# The beginnings of what tensorflow/python/util/deprecation.py logs, as it is before the
# caller, the subject and its module are filled in.
_NOTICE = "From %s: %s (from %s) is deprecated and will be removed %s.\n"
_NOTICE_OF_ARGUMENT = "From %s: calling %s (from %s) with %s"
_SUBJECT_OF_ESTIMATORS = "tensorflow_estimator."
# Whose calls a program cannot replace, whatever they call.
_FROZEN_CALLERS = ("tensorflow_estimator", "estimator_runtime", "tf_keras", "keras")
# What TensorFlow itself may call of its own: sessions, savers, hooks, feature columns,
# exports, event files.
_SUBJECTS_OF_TENSORFLOW = (
    "tensorflow.python.checkpoint.",
    "tensorflow.python.training.",
    "tensorflow.python.feature_column.",
    "tensorflow.python.lib.io.",
    "tensorflow.python.saved_model.",
)


def is_verbose(environ):
    """Tell whether everything is to be shown.

    Raises:
        ConfigError: If the variable has a value that cannot be used.
    """
    return VARIABLE in environ and option_values.parse_verbose(
        environ[VARIABLE], VARIABLE
    )


class Folding(logging.Filter):
    """Leaves out the records that are on the list, and counts them.

    Attributes:
        count: How many there were.
    """

    count = 0

    def filter(self, record):
        """Tell whether a record passes."""
        if not is_foldable(record):
            return True
        self.count += 1
        reporting.send(folded=1)
        return False


def is_foldable(record):
    """Tell whether a record is a deprecation warning that no program can heed."""
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


def _is_in(file, package):
    module = sys.modules.get(package)
    origin = getattr(module, "__file__", None)
    return origin is not None and file.startswith(os.path.dirname(origin) + os.sep)


_folding: Folding | None = None


def start(environ):
    """Fold from now on, unless all is to be shown.

    Raises:
        ConfigError: If the variable has a value that cannot be used.
    """
    global _folding
    if _folding is None and not is_verbose(environ):
        _folding = Folding()
        # Those of a logger see only what is logged to it, and not to its children.
        logging.getLogger("tensorflow").addFilter(_folding)


def tell():
    """Say how many were left out since the last time, if any were.

    A launcher says it for all its tasks.
    """
    if _folding is not None and _folding.count and not reporting.is_on():
        count, _folding.count = _folding.count, 0
        # The program may have closed it.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"estimator-runtime: {summary(count)}\n")


def summary(warnings, start_lines=0):
    """Say in a line what was left out, and how to see it.

    Args:
        warnings: How many deprecation warnings.
        start_lines: How many lines of TensorFlow's start.
    """
    parts = []
    if warnings:
        noun = "warning" if warnings == 1 else "warnings"
        parts.append(f"{warnings} deprecation {noun} about what Estimators are made of")
    if start_lines:
        noun = "line" if start_lines == 1 else "lines"
        parts.append(f"{start_lines} {noun} of TensorFlow's start")
    return f"left out {' and '.join(parts)}; --verbose shows them"
