"""The newest checkpoint of a folder, even if several hooks save to it."""

import contextlib
import logging
import os

from estimator_runtime.checkpoint.store import files
from estimator_runtime.checkpoint.store.state_file import StateError, read_state

_logger = logging.getLogger(__name__)


class Newest:
    """The newest checkpoint of a folder, as last seen in the state file.

    A write in the background may end after the program, or one of its hooks, has saved
    a checkpoint of a later step.

    Args:
        folder: Path of the folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._has_warned = False
        self._known = self._read()

    def note(self, prefix: str) -> None:
        """Record that a checkpoint is the newest now."""
        self._known = os.path.basename(prefix)

    def of_another(self, prefix: str) -> str | None:
        """Return the newest checkpoint if somebody else has saved it at a later step.

        The first time, the log names it.

        Args:
            prefix: Path of the checkpoint that is about to be the newest, without
                suffix.

        Returns:
            Path without suffix, or None.
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

    def _read(self) -> str | None:
        with contextlib.suppress(StateError, OSError):
            state = read_state(self._folder)
            return os.path.basename(state.latest) if state else None
        return None


def _step(prefix: str) -> int:
    return files.step_of(prefix) or 0


def as_text(
    path: str | None, unknown: str | None = None, spoilt: str | None = None
) -> str:
    """Return the message about the newest good checkpoint, on one or two lines.

    Args:
        path: Path of the checkpoint without suffix, or None.
        unknown: Why the path is unknown, or None.
        spoilt: Which newer checkpoints are unusable and why, or None.
    """
    if path is not None:
        line = f"newest good checkpoint: {path}"
        return f"{line}\n{spoilt}" if spoilt else line
    if unknown is not None:
        return f"newest good checkpoint: not known here, {unknown}"
    return "no checkpoint was saved"
