"""Commit of a checkpoint: complete, durable files get their final names.

A checkpoint is committed when the state file names it. Each of these steps is on the
disk before the next one begins:

1. The files are written to a hidden folder beside their final place.
2. They get their final names. The index is last, because a checkpoint exists only if
   it has an index.
3. The state file names the checkpoint, and still those that are to be deleted.
4. Those are deleted, and the state file no longer names them.
5. The hidden folder is removed. Until then, it tells `cleanup` which save a dead run
   left unfinished.

A checkpoint that already has the name is first moved into the hidden folder, and is
deleted with it. Until then, one of the two can always be recovered.
"""

import logging
import os
import shutil
from collections.abc import Sequence

from estimator_runtime.checkpoint.checkpoint import Checkpoint
from estimator_runtime.checkpoint.store import durable, locks

_logger = logging.getLogger(__name__)

_REPLACED = "replaced"
# Whether a checkpoint had the name already when the save began.
_NEW, _OLD = "new", "old"


class SavingFolder:
    """The hidden folder of one save.

    Args:
        path: Its path, from `durable.temporary_name`.

    Attributes:
        path: Its path.
        prefix: Final path of the checkpoint, without suffix.
        inside: Path of the checkpoint in this folder, without suffix.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.prefix = durable.final_path(path)
        self.inside = os.path.join(path, os.path.basename(self.prefix))

    @classmethod
    def create(cls, prefix: str) -> "SavingFolder":
        """Create and lock the folder for a new checkpoint.

        Raises:
            OSError: If it cannot be created, for example because the model directory
                was removed.
        """
        while True:
            folder = cls(durable.temporary_name(prefix))
            os.mkdir(folder.path)
            try:
                locks.lock_folder(folder.path)
                mark = _OLD if folder.is_in_place else _NEW
                open(os.path.join(folder.path, mark), "x").close()
                return folder
            except FileNotFoundError:  # `cleanup` has removed it before it was locked
                locks.unlock_folder(folder.path)
            except OSError:
                folder.remove()
                raise

    @property
    def is_in_place(self) -> bool:
        """Whether there is a checkpoint at the final path, new or old."""
        return os.path.exists(f"{self.prefix}.index")

    @property
    def replaced(self) -> Checkpoint:
        """The checkpoint that the new one replaces; without files if there is none."""
        aside = os.path.join(self.path, _REPLACED)
        prefix = os.path.join(aside, os.path.basename(self.prefix))
        if os.path.islink(self.path) or os.path.islink(aside):  # in another folder
            return Checkpoint(prefix=prefix, files=())
        return Checkpoint.at(prefix)

    @property
    def has_moved_in(self) -> bool:
        """Whether the checkpoint at the final path is the one that was written here."""
        is_first = os.path.exists(os.path.join(self.path, _NEW))
        return self.is_in_place and (is_first or self.replaced.has_index)

    def move_in(self) -> None:
        """Sync the files, and move them to their final names.

        The checkpoint is then complete and durable. The state file does not name it.

        Raises:
            OSError: If a step fails. Call `undo` then.
        """
        # The index is last.
        paths = Checkpoint.at(self.inside).index_first[::-1]
        for path in paths:
            # A file with several links is on the disk already, under another name. Some
            # file systems do not count links and report 0, so these are synced too.
            if os.stat(path).st_nlink <= 1:
                durable.sync_file(path)
        old = Checkpoint.at(self.prefix)
        if old.has_index:
            self._move_aside(old)
        self._move_to_place(paths)

    def undo(self) -> None:
        """Remove the new files from their final names, and put the old ones back.

        Raises:
            OSError: If some files cannot be moved. You can call this again.
        """
        old = self.replaced
        if old.has_index:
            durable.remove_if_there(f"{self.prefix}.index")
            durable.sync_folder(os.path.dirname(self.path))
            self._move_to_place(old.index_first[::-1])
        elif os.path.exists(os.path.join(self.path, _NEW)):
            Checkpoint.at(self.prefix).delete()

    def remove(self) -> None:
        """Remove the folder and its content, if it still exists.

        It stays if it holds the only checkpoint of its name, because `undo` has failed.
        The next run puts that back.
        """
        try:
            old = self.replaced
            if old.has_index and not self.is_in_place:
                _logger.warning(
                    "%s could not be moved back; it stays in %r until the next run "
                    "moves it back",
                    self.prefix,
                    self.path,
                )
                return
            # With the index deleted first, no partly deleted checkpoint looks complete.
            old.delete()
            shutil.rmtree(self.path, ignore_errors=True)
        except OSError as error:
            reason = error.strerror or error
            _logger.warning("%r cannot be removed: %s", self.path, reason)
        finally:
            locks.unlock_folder(self.path)

    def _move_aside(self, old: Checkpoint) -> None:
        """Move a checkpoint into this folder, its index first.

        `undo` moves the index last. So as long as the index is here, there is something
        to move back, wherever the other files are.
        """
        aside = os.path.join(self.path, _REPLACED)
        os.mkdir(aside)
        for path in old.index_first:
            os.rename(path, os.path.join(aside, os.path.basename(path)))
        for changed in (aside, self.path, os.path.dirname(self.path)):
            durable.sync_folder(changed)

    def _move_to_place(self, paths: Sequence[str]) -> None:
        place = os.path.dirname(self.path)
        for path in paths:
            os.rename(path, os.path.join(place, os.path.basename(path)))
        durable.sync_folder(place)
