"""Which checkpoint a folder has for its newest, where not only one hook saves to it."""

import contextlib
import logging
import os

from estimator_runtime.checkpoint import files
from estimator_runtime.checkpoint.state import StateError, read_state

_logger = logging.getLogger(__name__)


class Newest:
    """The newest checkpoint of a folder, as the state file had it at some time.

    A write in the background may end later than one of a later step that the program,
    or a hook of its own, has begun after it.

    Args:
        folder: Path of the folder.
    """

    def __init__(self, folder):
        self._folder = folder
        self._has_warned = False
        self._known = self._read()

    def note(self, prefix):
        """Take note that this checkpoint is the newest now."""
        self._known = os.path.basename(prefix)

    def of_another(self, prefix):
        """Give the newest one, if somebody else has saved it and it is of a later step.

        Args:
            prefix: Path of the checkpoint that is to be named, without suffix.

        Returns:
            Path without suffix, or None. It is named once in the log.
        """
        name = self._read()
        if name is None or name == self._known:
            return None
        newer = os.path.join(self._folder, name)
        if _step(newer) <= _step(prefix) or not files.at(newer).has_index:
            return None
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "%s stays the newest checkpoint, beside %s of an earlier step: another "
                "hook, or the program, saves in this folder too. Let only one do so",
                newer,
                os.path.basename(prefix),
            )
        return newer

    def _read(self):
        with contextlib.suppress(StateError, OSError):
            state = read_state(self._folder)
            return os.path.basename(state.latest) if state else None
        return None


def _step(prefix):
    return files.step_of(prefix) or 0


def as_text(
    path: str | None, unknown: str | None = None, spoilt: str | None = None
) -> str:
    """Return what a user is told of the newest good checkpoint, on one or two lines.

    Args:
        path: Its path without suffix, or None.
        unknown: Why it is not known, or None.
        spoilt: Which are newer, but no good, and why, or None.
    """
    if path is not None:
        line = f"newest good checkpoint: {path}"
        return f"{line}\n{spoilt}" if spoilt else line
    if unknown is not None:
        return f"newest good checkpoint: not known here, {unknown}"
    return "no checkpoint was saved"
