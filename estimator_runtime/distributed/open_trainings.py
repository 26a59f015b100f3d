"""The trainings of this process that have begun and not ended, for the launcher.

A program may catch the error that ends its training, or exit in the middle of it, and
still exit with status 0. So the launcher has to know that a training was under way.
Every change is sent before the program goes on, because `os._exit` leaves no thread the
time to send it.

Standard library only, like `reporting`.
"""

import contextlib
from collections.abc import Iterator

from estimator_runtime import reporting

_folders: set[str] = set()
_whole: set[str] = set()  # those of a train_and_evaluate that is running


def begin(folder: str) -> None:
    """Record that a training of the model in `folder` has begun.

    Args:
        folder: Its model directory; "" if it saves to none.
    """
    if folder not in _folders:
        _folders.add(folder)
        _send()


def end(folder: str) -> None:
    """Record that a training of the model in `folder` has ended without an error.

    That settles earlier trainings too: a program may catch the error of one, and try
    again or train another model. Within `until_done` it does nothing, because more may
    follow, such as a last export.

    Args:
        folder: As in `begin`.
    """
    if folder in _folders and folder not in _whole:
        _folders.intersection_update(_whole)
        _send()


@contextlib.contextmanager
def until_done(folder: str) -> Iterator[None]:
    """Record that a training is under way, until this context ends without an error.

    Args:
        folder: As in `begin`.
    """
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
