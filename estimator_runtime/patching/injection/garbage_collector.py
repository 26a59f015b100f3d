"""Spares the import of TensorFlow from Python's garbage collector.

Importing TensorFlow creates 400,000 objects that live as long as the process. The
collector scans them again and again: a quarter of the time of a short program. So it
ignores all objects that exist right after the import (`gc.freeze`).
"""

import atexit
import contextlib
import gc
import io
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from estimator_runtime.config.options import parse_switch

VARIABLE = "ESTIMATOR_RUNTIME_FREEZE_IMPORT"
# New objects between two collections until TensorFlow is imported.
_RARELY = 200_000


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the collector should ignore the import of TensorFlow.

    Raises:
        ConfigError: If the variable is neither 0 nor 1.
    """
    text = environ.get(VARIABLE, "1")
    return parse_switch(text, VARIABLE, "for an import that is not collected")


def spare_import() -> None:
    """Collect rarely until the program imports TensorFlow, then freeze what exists."""
    import wrapt  # here, so that --help does not need it

    thresholds = gc.get_threshold()

    def freeze(_tensorflow: object) -> None:
        gc.collect()
        atexit.register(_flush, weakref.WeakSet(_files(gc.get_objects())))
        gc.freeze()
        if gc.get_threshold() == rare:  # else the program has set its own
            gc.set_threshold(*thresholds)

    rare = (_RARELY, *thresholds[1:])
    gc.set_threshold(*rare)
    wrapt.register_post_import_hook(freeze, "tensorflow")


@contextlib.contextmanager
def sparing() -> Iterator[None]:
    """Turn the collector off in this context, and freeze all objects at its end."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


def _files(objects: Iterable[object]) -> Iterator[Any]:
    # Not isinstance, which reads __class__, for which lazy modules load.
    return (each for each in objects if issubclass(type(each), io.IOBase))


def _flush(frozen_files: Iterable[Any]) -> None:
    """Flush all open files: a frozen class or cycle that has one is never collected."""
    for file in (*frozen_files, *_files(gc.get_objects())):
        with contextlib.suppress(Exception):
            file.flush()
