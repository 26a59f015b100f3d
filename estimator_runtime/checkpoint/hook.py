"""The hook that saves checkpoints at the steps of TensorFlow's hook, in the background.

`asynchronous` replaces the CheckpointSaverHooks of a session with `CheckpointHook`s.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.util.event_pb2 import SessionLog

from estimator_runtime.checkpoint import interval
from estimator_runtime.checkpoint.cost import CheckpointCost
from estimator_runtime.checkpoint.save.snapshot import CannotSnapshot
from estimator_runtime.checkpoint.save.target import SaverTarget, Target, exported_meta
from estimator_runtime.checkpoint.save.writer import CheckpointWriter
from estimator_runtime.checkpoint.store import series
from estimator_runtime.checkpoint.store.locks import ModelDirLock
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.signals import request
from estimator_runtime.tf_internals import hooks as tf_hooks
from estimator_runtime.tf_internals.hooks import STEP_METHODS

if TYPE_CHECKING:
    from estimator_runtime.checkpoint.restore.session_creator import (
        VerifiedSessionCreator,
    )

_logger = logging.getLogger(__name__)
_tensorflow = logging.getLogger("tensorflow")  # for TensorFlow's own lines


def asynchronous(
    hooks: Iterable[tf.compat.v1.train.SessionRunHook],
    creator: VerifiedSessionCreator,
    *,
    is_async: bool,
    overhead: float | None,
) -> list[tf.compat.v1.train.SessionRunHook]:
    """Replace each CheckpointSaverHook with a CheckpointHook, where that is allowed.

    Hooks of a subclass, and hooks that the program has modified, stay as they are.

    Args:
        hooks: Hooks of a session.
        creator: The session creator of the session.
        is_async: Whether training continues while a checkpoint is written. If not, only
            the hooks whose interval follows the cost of checkpoints are replaced.
        overhead: The fraction of the wall time that checkpoints may take. The hooks
            with TensorFlow's default interval follow it. None changes no interval.

    Returns:
        The hooks, in the same order.
    """
    # All hooks share one writer, because two hooks may save to one folder.
    writer = CheckpointWriter()

    def replaced(hook: Any) -> tf.compat.v1.train.SessionRunHook:
        if not _is_stock(hook):
            return hook
        own = overhead if interval.is_default(hook) else None
        if not is_async and own is None:
            return hook
        return CheckpointHook(hook, creator, writer, waits=not is_async, overhead=own)

    return list(map(replaced, hooks))


def _is_stock(hook: tf.compat.v1.train.SessionRunHook) -> bool:
    is_exact = type(hook) is tf.compat.v1.train.CheckpointSaverHook
    return is_exact and STEP_METHODS.isdisjoint(vars(hook))


def _will_read(listener: tf.compat.v1.train.CheckpointSaverListener, step: int) -> bool:
    """Return whether `after_save` of a listener may read the checkpoint of a step."""
    will_read = getattr(listener, "will_read", None)
    return will_read is None or will_read(step)


@contextlib.contextmanager
def _only_logged(summary_writer: tf.compat.v1.summary.FileWriter) -> Iterator[None]:
    """Log the error of an event file that cannot be written, and suppress it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (of a disk, a RuntimeError of TensorFlow's)
        folder, reason = summary_writer.get_logdir(), str(error).partition("\n")[0]
        _logger.warning("the event file in %r cannot be written: %s", folder, reason)


def flush_event_files(hooks: Iterable[tf.compat.v1.train.SessionRunHook]) -> None:
    """Write out what the event files of hooks have buffered.

    TensorFlow's Saver does so at each save, as it flushes all streams of C's library.
    """
    for writer in tf_hooks.open_event_files(hooks):
        with _only_logged(writer):
            writer.flush()


class CheckpointHook(tf.compat.v1.train.CheckpointSaverHook):
    """A CheckpointSaverHook that writes checkpoints while training continues.

    It saves at the same steps as TensorFlow's hook, with the same log lines, the same
    summary events and the same calls of listeners. Training waits only for the snapshot
    of a step. The checkpoint of the last step is on the disk when `end` returns. It
    differs from TensorFlow's hook as follows:

    * With listeners, training waits until a checkpoint is on the disk. Only then is
      their `after_save` called, so they may read the checkpoint. A listener may have a
      method `will_read(step)`; if it returns False, that save does not wait for it.
    * If saves are due faster than the disk can write them, a hook that saves by time
      skips all but the newest. A hook that saves by steps waits for the previous save.
    * A checkpoint that was just restored is not written again. Listeners are called
      all the same.
    * A write that fails is logged. It is raised as a CheckpointError at the next save,
      or at the end of training, after an attempt to save the step that is due then.
    * Where a snapshot is not possible (see `snapshot`), training waits for the Saver.

    Args:
        hook: The CheckpointSaverHook to replace. It keeps its settings, its timer and
            its list of listeners, and a program may still save with it.
        creator: The session creator, which has the path of the restored checkpoint.
        writer: The writer of the session.
        waits: Whether training waits for each checkpoint.
        overhead: The fraction of the wall time that checkpoints may take, which the
            interval follows; None for the interval of the hook.

    Attributes:
        measures: The measures of the newest checkpoint on the disk, or None.
        scheduled_as: The class whose steps it sees; see `loop.hooks.schedule`. A write
            that ends in between needs nothing of the training thread: if it has failed,
            the next save raises that.
    """

    scheduled_as = tf.compat.v1.train.CheckpointSaverHook

    def __init__(
        self,
        hook: tf.compat.v1.train.CheckpointSaverHook,
        creator: VerifiedSessionCreator,
        writer: CheckpointWriter,
        waits: bool = False,
        overhead: float | None = None,
    ) -> None:
        # Not the constructor of the base class, which would log a second hook.
        self._stock = hook
        self._creator = creator
        self._writer = writer
        self._waits = waits
        self._overhead = overhead
        self._saved_at: float | None = None
        self._left_out: int | None = None  # the newest step, if its save was skipped
        self.measures: CheckpointCost | None = None
        if overhead is not None:
            self._follow_cost(overhead)
        self._restored: str | None = None
        # Where the checkpoints of this session go.
        self._target: Target | SaverTarget | None = None
        self._meta: bytes | None = None
        self._lock: ModelDirLock | None = None  # held while there is a session

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the replaced hook."""
        return getattr(self.__dict__["_stock"], name)

    def begin(self) -> None:
        """Begin as the replaced hook does."""
        self._stock.begin()

    def after_create_session(
        self,
        session: tf.compat.v1.Session,
        coord: tf.compat.v1.train.Coordinator,
    ) -> None:
        """Save the initial variables, unless the session restored them."""
        self.finish_background_work()
        self._lock = ModelDirLock(os.path.dirname(self._save_path))
        self._restored = self._creator.restored_prefix
        self._target = None
        super().after_create_session(session, coord)
        if self._save_graph_def and self._target is None:  # nothing was saved here
            # The .meta files need the graph as it is now: fused steps add a loop to it.
            self._target = self._make_target(session)
        self._restored = None

    def end(self, session: tf.compat.v1.Session) -> None:
        """Save the last step, and wait until it is on the disk.

        Raises:
            CheckpointError: If this save or an earlier one failed. The last step is
                saved even if an earlier save failed, and if its own save failed before,
                that is tried once more.
        """
        last_step = session.run(self._global_step_tensor)
        is_saved = last_step == self._timer.last_triggered_step() != self._left_out
        if is_saved:
            self._writer.wait()
            has_failed = self._writer.has_failed
            is_saved = not has_failed or self._writer.last_step == last_step
        if not is_saved:
            self._save(session, last_step, is_last=True)
        self._writer.close()
        for listener in self._listeners:
            listener.end(session, last_step)

    def finish_background_work(self) -> None:
        """Wait until no write is under way, unless a second signal forbids waiting."""
        try:
            if not request.is_hurried():
                self._writer.wait()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _follow_cost(self, overhead: float) -> None:
        """Set the interval by the cost of a checkpoint, if it is known."""
        cost_secs = 0.0 if self.measures is None else self.measures.cost_secs
        self._timer._every_secs = interval.at_cost(overhead, cost_secs)
        # The hook may be the program's, which trains with it again.
        interval.mark(self._timer)

    def _save(
        self, session: tf.compat.v1.Session, step: int, is_last: bool = False
    ) -> bool:
        """Save a step as TensorFlow's hook does; return whether training is to stop."""
        self._left_out = None
        if self._overhead is not None and self._writer.is_busy and not is_last:
            # The cost of the write under way is not known yet. A snapshot would take
            # time, and a newer one would replace it.
            self._left_out = step
            return False
        start = time.monotonic()
        with request.saving():
            self._writer.make_room(instead_of=self._series)
        waited_secs = time.monotonic() - start
        if self.measures is not None and self._overhead is not None:
            self._follow_cost(self._overhead)
        _tensorflow.info(
            "Calling checkpoint listeners before saving checkpoint %d...", step
        )
        for listener in self._listeners:
            listener.before_save(session, step)
        if self._is_restored(step):
            TRAINING_LOG.info("The checkpoint of step %d has just been restored.", step)
        else:
            _tensorflow.info(
                "Saving checkpoints for %d into %s.", step, self._save_path
            )
            with request.saving():
                self._write(session, step, waited_secs)
                if self._writer.has_failed:
                    self._writer.close()
        _tensorflow.info(
            "Calling checkpoint listeners after saving checkpoint %d...", step
        )
        should_stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                _tensorflow.info(
                    "A CheckpointSaverListener requested that training be stopped. "
                    "listener: %s",
                    listener,
                )
                should_stop = True
        return should_stop

    def _is_restored(self, step: int) -> bool:
        """Return whether the session has just restored the checkpoint of this step."""
        saver = self._get_saver()
        if self._restored is None or self._creator.saver is not saver:
            return False
        prefix = series.prefix_of(saver, self._save_path, step)
        return os.path.abspath(prefix) == os.path.abspath(self._restored)

    @property
    def _series(self) -> CheckpointHook | None:
        """This hook if it saves by time: a newer write may replace one that waits."""
        by_time = getattr(self._timer, "_every_secs", None) is not None
        return self if by_time else None

    def _write(
        self, session: tf.compat.v1.Session, step: int, waited_secs: float
    ) -> None:
        """Write a checkpoint, for which training has waited `waited_secs` already."""
        start = time.monotonic()
        since_secs = None if self._saved_at is None else start - self._saved_at
        self._saved_at = start
        if self._target is None:
            self._target = self._make_target(session)

        def note(size: int, blocked_secs: float, write_secs: float) -> None:
            """Record what the checkpoint, which is on the disk now, has cost."""
            cost = self.measures = CheckpointCost(
                step=int(step),
                bytes=size,
                blocked_secs=blocked_secs,
                write_secs=write_secs,
                interval_secs=since_secs,
            )
            log = SessionLog(
                status=SessionLog.CHECKPOINT, checkpoint_path=self._save_path
            )
            with _only_logged(self._summary_writer):
                self._summary_writer.add_session_log(log, step)
                cost.report(self._summary_writer)

        if isinstance(self._target, SaverTarget):
            size = self._target.save(step)
            note(size, waited_secs + time.monotonic() - start, 0.0)
            return
        write, size = self._target.prepare(step, self._meta)
        waits = self._waits or any(_will_read(e, step) for e in self._listeners)
        blocked_secs = waited_secs + time.monotonic() - start

        def write_and_note() -> None:
            begun = time.monotonic()
            with request.saving():
                write()
            took_secs = time.monotonic() - begun
            waited, background = (took_secs, 0.0) if waits else (0.0, took_secs)
            note(size, blocked_secs + waited, background)

        self._writer.submit(step, write_and_note, self._series, self._save_path)
        if waits:
            self._writer.close()

    def _make_target(self, session: tf.compat.v1.Session) -> Target | SaverTarget:
        saver = self._get_saver()
        try:
            target = Target(session, saver, self._save_path)
        except CannotSnapshot as reason:
            TRAINING_LOG.info(
                "Training waits for each checkpoint in %s, because %s.",
                os.path.dirname(self._save_path),
                reason,
            )
            return SaverTarget(session, saver, self._save_path, self._save_graph_def)
        if self._save_graph_def:
            self._meta = self._meta or exported_meta(session, saver)
        return target
