"""Series: the checkpoints of one Saver in a folder, and which of them to keep."""

import contextlib
import dataclasses
import glob
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from estimator_runtime.checkpoint.checkpoint import (
    Checkpoint,
    index_identity,
    is_in,
)
from estimator_runtime.checkpoint.store import durable, locks, state_file
from estimator_runtime.checkpoint.store.commit import SavingFolder
from estimator_runtime.checkpoint.store.disk_errors import OF_DISKS, disk_error
from estimator_runtime.config.paths import step_of
from estimator_runtime.errors import CheckpointError

_logger = logging.getLogger(__name__)


class Series:
    """The checkpoints of a Saver, written without it but kept as it would keep them.

    The Saver's own list (`last_checkpoints`) is updated as well. Programs and exporters
    read it, and the Saver uses it if it has to save by itself.

    Args:
        saver: The Saver.
        save_path: Path of the checkpoints without step, such as "/ckpt/model.ckpt".
        now: Returns the current time, in seconds since 1970.
    """

    def __init__(
        self,
        saver: tf.compat.v1.train.Saver,
        save_path: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._saver = saver
        self._save_path = save_path
        self._folder = os.path.dirname(save_path)
        self._now = now
        self._meta_path: str | None = None
        every_secs = saver.saver_def.keep_checkpoint_every_n_hours * 3600
        self._policy = Policy(newest=saver.saver_def.max_to_keep, every_secs=every_secs)
        # A new Saver starts with the time at which this process built it.
        self._preserved_at = saver._next_checkpoint_time - every_secs
        state = self._read_state()
        if state and state.last_preserved is not None:
            self._preserved_at = state.last_preserved
        # Name of the newest checkpoint, as last seen in the state file.
        self._newest = os.path.basename(state.latest) if state else None
        self._has_warned = False

    def add(
        self,
        step: int,
        write: Callable[[str], object],
        needed_bytes: int,
        meta: bytes | None = None,
    ) -> None:
        """Write a checkpoint, and delete old ones once it is on the disk.

        Args:
            step: The global step.
            write: Writes the files to a path without suffix.
            needed_bytes: Size of what `write` writes, in bytes; for the error message.
            meta: Content of the .meta file, or None for no such file. The content is
                the same for the whole series: the files are links to each other.

        Raises:
            CheckpointError: If it cannot be written. The other checkpoints are
                unchanged.
        """
        prefix = prefix_of(self._saver, self._save_path, step)
        with locks.write_lock(), contextlib.ExitStack() as unread:
            folder = None
            try:
                folder = SavingFolder.create(prefix)
                write(folder.inside)
                if meta is not None:
                    self._put_meta(f"{folder.inside}.meta", meta)
                folder.move_in()
                state, gone = self._record(prefix, unread)
            except BaseException as error:  # nothing is left half done
                if folder is not None:
                    self._give_up(folder)
                if not isinstance(error, (OSError, tf.errors.OpError)):
                    raise
                needed_bytes += len(meta or b"")
                raise disk_error(prefix, error, needed_bytes) from error
            if meta is not None:
                self._meta_path = f"{prefix}.meta"
            self._delete(gone, state)
            folder.remove()

    def add_saved(self, step: int, save: Callable[[], object]) -> str:
        """Have a Saver write a checkpoint by itself, then continue as `add` does.

        Args:
            step: The global step.
            save: Has the Saver write the files, but not the state file.

        Returns:
            Path of the checkpoint, without suffix.

        Raises:
            CheckpointError: If the disk does not accept it. The other checkpoints are
                unchanged.
            tf.errors.OpError: If something else fails. The files stay, because a task
                of the cluster may still be writing to them.
        """
        with (
            locks.write_lock(),
            contextlib.ExitStack() as stack,
            self.removed_if_failed(step) as prefix,
        ):
            folder = SavingFolder.create(prefix)
            # Also after other errors: if the folder stayed, later checkpoints would be
            # taken for older ones.
            stack.callback(folder.remove)
            # A chief that comes back to living ps tasks saves their step again. The
            # Saver writes to temporary names first. So until it renames them, the old
            # checkpoint of that step stays unchanged.
            save()
            sync(prefix)
            state, gone = self._record(prefix, stack)
            self._delete(gone, state)
        return prefix

    @contextlib.contextmanager
    def removed_if_failed(self, step: int) -> Iterator[str]:
        """Remove what a Saver has written in this context, if the disk fails.

        A checkpoint of that step that was there before stays, unless it was replaced.

        Yields:
            Path of the checkpoint, without suffix.

        Raises:
            CheckpointError: If the disk has failed.
        """
        prefix = prefix_of(self._saver, self._save_path, step)
        old = index_identity(prefix)
        try:
            yield prefix
        except CheckpointError:
            raise
        except (OSError, *OF_DISKS) as error:
            is_replaced = old is None or old != index_identity(prefix)
            shutil.rmtree(f"{prefix}_temp", ignore_errors=True)
            for path in glob.glob(f"{glob.escape(prefix)}.*.tempstate*"):
                durable.remove_if_there(path)
            with contextlib.suppress(OSError):
                if is_replaced and not self._is_named(prefix):
                    Checkpoint.at(prefix).delete()
            raise disk_error(prefix, error) from error

    def _put_meta(self, path: str, content: bytes) -> None:
        if self._meta_path is not None:
            # Fails if the previous file was deleted, or if there are no hard links.
            with contextlib.suppress(OSError):
                os.link(self._meta_path, path)
                return
        with open(path, "wb") as file:
            file.write(content)

    def _record(
        self, prefix: str, unread: contextlib.ExitStack
    ) -> tuple[state_file.State, tuple[str, ...]]:
        """Name a checkpoint in the state file, beside all that were named before.

        Returns:
            (the state file once those are deleted that are to be, their paths). Until
            `unread` is closed, nobody can begin to read them.
        """
        before = self._saver._last_checkpoints[:]
        # A Saver may also restore from, or save to, another folder. Checkpoints there
        # do not count as checkpoints of this folder.
        here = [each for each in before if is_in(self._folder, each[0])]
        elsewhere = [each for each in before if each not in here]
        newer = self._newer_of_another(prefix)
        now = self._now()
        kept = _with(here, (prefix, now), newer)
        # A time ahead of the clock, which was wrong then, would keep none until then.
        is_past = self._preserved_at <= now  # False for NaN
        plan = self._policy.plan(
            kept,
            self._preserved_at if is_past else now,
            may_go=lambda path: unread.enter_context(locks.deleting(path)),
        )
        latest = newer or prefix

        def naming(checkpoints: Sequence[tuple[str, float]]) -> state_file.State:
            return state_file.State(
                latest=latest,
                paths=tuple(path for path, _ in checkpoints),
                timestamps=tuple(at for _, at in checkpoints),
                last_preserved=plan.preserved_at,
            )

        named = plan.kept
        for path in (prefix, newer):
            if path is not None and path not in dict((*named, *plan.gone)):
                named = (*named, (path, self._now()))
        self._write_state(naming((*plan.gone, *named)))
        self._newest = os.path.basename(latest)
        # The training thread may have saved by itself meanwhile.
        added = [each for each in self._saver._last_checkpoints if each not in before]
        self._saver._last_checkpoints = [*elsewhere, *plan.kept, *added]
        self._preserved_at = plan.preserved_at
        self._saver._next_checkpoint_time = plan.preserved_at + self._policy.every_secs
        return naming(named), tuple(dict(plan.gone))

    def _write_state(self, state: state_file.State) -> None:
        relative = self._saver._save_relative_paths or not os.path.isabs(self._folder)
        state_file.write_state(self._folder, state, relative=relative)

    def _read_state(self) -> state_file.State | None:
        with contextlib.suppress(state_file.StateError, OSError):
            return state_file.read_state(self._folder)
        return None

    def _newer_of_another(self, prefix: str) -> str | None:
        """Return the newest checkpoint if somebody else has saved it at a later step.

        A write in the background may end after the program, or one of its hooks, has
        saved a later step.
        """
        state = self._read_state()
        name = os.path.basename(state.latest) if state else None
        if name is None or name == self._newest:
            return None
        newer = os.path.join(self._folder, name)
        is_later = (step_of(newer) or 0) > (step_of(prefix) or 0)
        if not is_later or not Checkpoint.at(newer).has_index:
            return None
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "%s stays the newest checkpoint, beside %s of an earlier step: another "
                "hook or the program saves to this folder too. Let only one do so",
                newer,
                os.path.basename(prefix),
            )
        return newer

    def _delete(self, prefixes: Sequence[str], state: state_file.State) -> None:
        """Delete checkpoints, and then write the state file that names them no more."""
        for prefix in prefixes:
            try:
                Checkpoint.at(prefix).delete()
            except OSError as error:
                _logger.warning("%s cannot be deleted: %s", prefix, error)
        try:
            if prefixes:
                self._write_state(state)
        except OSError as error:  # the next save writes it again
            _logger.warning("deleted checkpoints are still named: %s", error)

    def _give_up(self, folder: SavingFolder) -> None:
        """Undo a failed save, whose files may have their final names already."""
        with contextlib.suppress(OSError):
            # If it replaces one of the same name, the state file means the old one.
            if folder.replaced.has_index or not self._is_named(folder.prefix):
                folder.undo()
        folder.remove()

    def _is_named(self, prefix: str) -> bool:
        """Return whether the state file names a checkpoint, or cannot be read."""
        try:
            state = state_file.read_state(self._folder)
        except state_file.StateError:
            return True
        return state is not None and prefix in state.paths


def prefix_of(saver: tf.compat.v1.train.Saver, save_path: str, step: int) -> str:
    """Return the path, without suffix, of a Saver's checkpoint of a step."""
    number = f"{step:08d}" if saver._pad_step_number else f"{step:d}"
    return f"{save_path}-{number}"


def sync(prefix: str) -> None:
    """Sync a checkpoint that a Saver has written by itself, and the state file.

    Files on other machines are not synced.

    Raises:
        OSError: If a file cannot be synced.
    """
    folder = os.path.dirname(prefix)
    for path in Checkpoint.at(prefix).files:
        durable.sync_file(path)
    if os.path.isdir(folder):
        with contextlib.suppress(FileNotFoundError):
            durable.sync_file(os.path.join(folder, state_file.STATE_FILE))
        durable.sync_folder(folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetentionPlan:
    """Which of a Saver's checkpoints to keep and which to delete.

    Attributes:
        kept: (path, seconds since 1970) of each checkpoint that the Saver still tracks,
            oldest first.
        gone: (path, seconds since 1970) of each checkpoint to delete.
        preserved_at: Start of the current interval of `Policy.every_secs`, in seconds
            since 1970. The first checkpoint after its end is kept for good. Intervals
            are counted from the start of the training, and this one is the last that
            begins before the latest checkpoint that was kept for good.
    """

    kept: tuple[tuple[str, float], ...]
    gone: tuple[tuple[str, float], ...]
    preserved_at: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """How many checkpoints to keep.

    Attributes:
        newest: Number of the newest checkpoints to keep; 0 keeps all. With 0, the Saver
            tracks only those that it was given at its start, and none that it saves.
            TensorFlow's Saver does the same.
        every_secs: Of the checkpoints beyond `newest`, the first one after each
            interval of this length is kept for good. TensorFlow's Saver counts the
            intervals in the same way. But after a pause, such as a restart, it keeps
            one checkpoint for each interval that has passed; here only one is kept.
    """

    newest: int
    every_secs: float

    def plan(
        self,
        saved: Sequence[tuple[str, float]],
        preserved_at: float,
        may_go: Callable[[str], bool] = lambda path: True,
    ) -> RetentionPlan:
        """Return which checkpoints to keep and which to delete, after a new one.

        Args:
            saved: (path, seconds since 1970) of each checkpoint, oldest first; the last
                one is new. A program may set a time of infinity, which keeps a
                checkpoint for good.
            preserved_at: See `RetentionPlan`.
            may_go: Returns whether the checkpoint at a path may be deleted now. If not,
                the Saver still tracks it, and a later plan deletes it.
        """
        if not self.newest:
            return RetentionPlan(
                kept=tuple(saved[:-1]), gone=(), preserved_at=preserved_at
            )
        gone: list[tuple[str, float]] = []
        late: list[tuple[str, float]] = []
        for path, at in saved[: -self.newest]:
            if at == math.inf:
                continue
            if at - preserved_at > self.every_secs:
                preserved_at += self._whole_intervals(at - preserved_at)
            elif may_go(path):
                gone.append((path, at))
            else:
                late.append((path, at))
        return RetentionPlan(
            kept=(*late, *saved[-self.newest :]),
            gone=tuple(gone),
            preserved_at=preserved_at,
        )

    def _whole_intervals(self, secs: float) -> float:
        """Return a duration rounded down to a multiple of `every_secs`."""
        return secs - secs % self.every_secs if self.every_secs else secs


def _with(
    checkpoints: Sequence[tuple[str, float]],
    new: tuple[str, float],
    newer: str | None,
) -> list[tuple[str, float]]:
    """Return checkpoints, oldest first, with a new one before `newer`, or else last.

    One of the same name is replaced. Each is (path, time).
    """
    name = os.path.basename(new[0])
    kept = [each for each in checkpoints if os.path.basename(each[0]) != name]
    paths = [path for path, _ in kept]
    kept.insert(paths.index(newer) if newer in paths else len(paths), new)
    return kept
