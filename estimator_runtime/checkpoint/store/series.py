"""The checkpoints that one Saver keeps in a folder: adding one, letting others go."""

import contextlib
import glob
import logging
import os
import shutil
import time

import tensorflow as tf

from estimator_runtime.checkpoint import (
    commit,
    durable,
    files,
    lease,
    leftovers,
    retention,
)
from estimator_runtime.checkpoint.newest import Newest
from estimator_runtime.checkpoint.state import (
    STATE_FILE,
    State,
    StateError,
    read_state,
    write_state,
)
from estimator_runtime.checkpoint.turns import turn
from estimator_runtime.checkpoint.unwritten import OF_DISKS, unwritten

_logger = logging.getLogger(__name__)


class Series:
    """A Saver's checkpoints, written without its help but kept as it would keep them.

    The Saver's own list of them (`last_checkpoints`) is kept in step, because programs
    and exporters ask it, and it goes on from there if it has to save by itself.

    Args:
        saver: `tf.compat.v1.train.Saver`.
        save_path: Path of the checkpoints without step, such as "/ckpt/model.ckpt".
        now: Gives seconds since 1970.
    """

    def __init__(self, saver, save_path, now=time.time):
        self._saver = saver
        self._save_path = save_path
        self._folder = os.path.dirname(save_path)
        self._now = now
        self._meta_path = None
        every_secs = saver.saver_def.keep_checkpoint_every_n_hours * 3600
        self._policy = retention.Policy(
            newest=saver.saver_def.max_to_keep, every_secs=every_secs
        )
        # What the Saver has started with is when this process built it.
        self._preserved_at = saver._next_checkpoint_time - every_secs
        self._newest = Newest(self._folder)
        with contextlib.suppress(StateError, OSError):
            state = read_state(self._folder)
            if state and state.last_preserved is not None:
                self._preserved_at = state.last_preserved

    def add(self, step, write, needed_bytes, meta=None):
        """Write a checkpoint; when it is on the disk, let old ones go.

        Args:
            step: Global step.
            write: Writes its files, of (path without suffix).
            needed_bytes: Size of what it writes, in bytes; for the message.
            meta: Content of its .meta file, or None for none. One content for the
                whole series: the files are links to each other.

        Raises:
            CheckpointError: If it cannot be written; the others are as they were.
        """
        prefix = prefix_of(self._saver, self._save_path, step)
        with turn(), contextlib.ExitStack() as unread:
            folder, has_names = None, False
            try:
                folder = commit.start(prefix)
                name = os.path.basename(prefix)
                write(os.path.join(folder, name))
                if meta is not None:
                    self._put_meta(os.path.join(folder, f"{name}.meta"), meta)
                commit.move_in(folder, prefix)
                has_names = True
                gone = self._record(prefix, folder, unread)
            except (OSError, tf.errors.OpError) as error:
                self._give_up(prefix, folder, has_names)
                needed_bytes += len(meta or b"")
                raise unwritten(prefix, error, needed_bytes) from error
            if meta is not None:
                self._meta_path = f"{prefix}.meta"
            self._delete(gone)
            commit.abandon(folder)
            with contextlib.suppress(OSError):  # the next save, or run, tries again
                leftovers.delete_late(self._folder)

    def add_saved(self, step, save, needed_bytes):
        """Let a Saver write a checkpoint under its own name; the rest is as in `add`.

        Args:
            step: Global step.
            save: Lets it write the files, but not the state file.
            needed_bytes: As in `add`; None if that is not known.

        Returns:
            Path of the checkpoint, without suffix.

        Raises:
            CheckpointError: If its disk does not take it; the others are as they were.
            tf.errors.OpError: If something else has failed. Its files stay: a task of
                the cluster may still write to them.
        """
        prefix = prefix_of(self._saver, self._save_path, step)
        with turn(), contextlib.ExitStack() as unread:
            folder = None
            try:
                folder = commit.start(prefix)
                # It writes to other names first. So one of that step, which the chief
                # that comes back to living ps saves again, stays as it is until then.
                save()
                sync(prefix)
                gone = self._record(prefix, folder, unread)
                self._delete(gone)
            except (OSError, *OF_DISKS) as error:
                raise self.failed(step, error, needed_bytes) from error
            finally:  # also after another error: later ones would be taken for older
                if folder is not None:
                    commit.abandon(folder)
            with contextlib.suppress(OSError):  # the next save, or run, tries again
                leftovers.delete_late(self._folder)
        return prefix

    def failed(self, step, error, needed_bytes):
        """Remove what a Saver has left of a checkpoint; give the `CheckpointError`."""
        prefix = prefix_of(self._saver, self._save_path, step)
        shutil.rmtree(f"{prefix}_temp", ignore_errors=True)
        for path in glob.glob(f"{glob.escape(prefix)}.*.tempstate*"):
            durable.remove_if_there(path)
        self._give_up(prefix, None, has_names=True)
        return unwritten(prefix, error, needed_bytes)

    def _put_meta(self, path, content):
        if self._meta_path is not None:
            # Fails where the last one is gone, or the file system knows no links.
            with contextlib.suppress(OSError):
                os.link(self._meta_path, path)
                return
        with open(path, "wb") as file:
            file.write(content)

    def _record(self, prefix, folder, unread):
        """Name a checkpoint in the state file; give the paths of those to delete.

        Nobody can begin to read those until `unread` is left.
        """
        before = self._saver._last_checkpoints[:]
        # What a Saver has restored from elsewhere, or saves there as well, is not in
        # this folder's count.
        here = [each for each in before if files.is_in(self._folder, each[0])]
        elsewhere = [each for each in before if each not in here]
        name = os.path.basename(prefix)
        kept = [each for each in here if os.path.basename(each[0]) != name]
        newer = self._newest.of_another(prefix)
        paths = [path for path, _ in kept]
        place = paths.index(newer) if newer in paths else len(paths)
        kept.insert(place, (prefix, self._now()))
        plan = self._policy.plan(
            kept,
            self._preserved_at,
            may_go=lambda path: unread.enter_context(lease.deleting(path)),
        )
        named = plan.kept
        for path in (prefix, newer):
            if path is not None and path not in {*dict(named), *plan.gone}:
                named = (*named, (path, self._now()))
        commit.leave_note(folder, plan.gone)
        state = State(
            latest=newer or prefix,
            paths=tuple(path for path, _ in named),
            timestamps=tuple(at for _, at in named),
            last_preserved=plan.preserved_at,
        )
        relative = self._saver._save_relative_paths or not os.path.isabs(self._folder)
        write_state(self._folder, state, relative=relative)
        self._newest.note(state.latest)
        # The training thread may have saved by itself meanwhile.
        added = [each for each in self._saver._last_checkpoints if each not in before]
        self._saver._last_checkpoints = [*elsewhere, *plan.kept, *added]
        self._preserved_at = plan.preserved_at
        self._saver._next_checkpoint_time = plan.preserved_at + self._policy.every_secs
        return plan.gone

    def _delete(self, prefixes):
        for prefix in prefixes:
            try:
                files.delete(files.at(prefix))
            except OSError as error:
                _logger.warning("%s cannot be deleted: %s", prefix, error)

    def _give_up(self, prefix, folder, has_names):
        with contextlib.suppress(OSError, StateError):
            state = read_state(self._folder)
            is_named = state is not None and prefix in state.paths
            # One that was there before has the place in the state file.
            is_second = folder is not None and commit.has_replaced(folder)
            if has_names and (is_second or not is_named):
                files.delete(files.at(prefix))
            if is_second:
                commit.put_back(folder)
        if folder is not None:
            commit.abandon(folder)


def prefix_of(saver, save_path, step):
    """Give the path, without suffix, of the checkpoint that a Saver has of a step."""
    number = f"{step:08d}" if saver._pad_step_number else f"{step:d}"
    return f"{save_path}-{number}"


def sync(prefix):
    """Sync a checkpoint that a Saver has written by itself, and the state file.

    Files that are on another machine are left to it.

    Raises:
        OSError: If that fails.
    """
    folder = os.path.dirname(prefix)
    for path in files.at(prefix).files:
        durable.sync_file(path)
    if os.path.isdir(folder):
        state_file = os.path.join(folder, STATE_FILE)
        if os.path.exists(state_file):
            durable.sync_file(state_file)
        durable.sync_folder(folder)
