"""The trainings of this process that have begun and not ended, for the launcher.

A program may catch the error that ends its training, or leave in the middle, and still
exit with status 0. The launcher then has to know that a training was under way. Every
change is sent before the program goes on: `os._exit` gives no thread time to send it.

Standard library only, as `reporting`.
"""

import contextlib
from collections.abc import Iterator

from estimator_runtime import reporting

_folders: set[str] = set()
_whole: set[str] = set()  # those of a train_and_evaluate that runs


def begin(folder: str) -> None:
    """Note that a training of the model in `folder` has begun.

    Args:
        folder: Its model directory; "" where it saves to none.
    """
    if folder not in _folders:
        _folders.add(folder)
        _send()


def end(folder: str) -> None:
    """Note that a training of the model in `folder` has ended well.

    That settles earlier ones too: a program may catch the error of one, and try again
    or train another model. Within `until_done` it does nothing: more may follow, such
    as a last export.
    """
    if folder in _folders and folder not in _whole:
        _folders.intersection_update(_whole)
        _send()


@contextlib.contextmanager
def until_done(folder: str) -> Iterator[None]:
    """A context in which a training is under way; only leaving it well ends it."""
    begin(folder)
    _whole.add(folder)
    try:
        yield
    finally:
        _whole.discard(folder)
    end(folder)


def _send() -> None:
    reporting.send(unfinished=sorted(_folders))
    reporting.flush()
