"""Saves checkpoints at the steps of TensorFlow's hook, without its waits."""

import contextlib
import logging
import os
import time
from typing import Any

import tensorflow as tf
from tensorflow.core.util.event_pb2 import SessionLog

from estimator_runtime import options, preemption
from estimator_runtime.checkpoint import series
from estimator_runtime.checkpoint.claim import Claim
from estimator_runtime.checkpoint.interval import CostInterval
from estimator_runtime.checkpoint.measures import Measures
from estimator_runtime.checkpoint.saver_target import SaverTarget
from estimator_runtime.checkpoint.snapshot import CannotSnapshot
from estimator_runtime.checkpoint.target import Target, exported_meta
from estimator_runtime.checkpoint.unwritten import graph_written
from estimator_runtime.checkpoint.writer import CheckpointWriter
from estimator_runtime.hooks import STEP_METHODS
from estimator_runtime.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
_tensorflow = logging.getLogger("tensorflow")  # for TensorFlow's own lines


def asynchronous(hooks, creator):
    """Put a CheckpointHook in the place of each CheckpointSaverHook, if they may be.

    Those of a subclass, or changed by the program, stay as they are; so do all with
    `async_checkpoint=False`, but for those whose interval follows what they cost.

    Args:
        hooks: Hooks of a session.
        creator: `VerifiedSessionCreator` of the session.

    Returns:
        List of hooks, in the same order.
    """
    is_async = options.current().async_checkpoint
    writer = CheckpointWriter()  # one for all: two may save to one folder
    return [
        CheckpointHook(hook, creator, writer, waits=not is_async)
        if _is_stock(hook) and (is_async or _follows_cost(hook))
        else hook
        for hook in hooks
    ]


def _is_stock(hook):
    is_exact = type(hook) is tf.compat.v1.train.CheckpointSaverHook
    return is_exact and STEP_METHODS.isdisjoint(vars(hook))


def _follows_cost(hook):
    return isinstance(getattr(hook._timer, "_every_secs", None), CostInterval)


@contextlib.contextmanager
def _only_logged(summary_writer):
    """Let an event file that cannot be written cost nothing but what it would say."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (of a disk, a RuntimeError of TensorFlow's)
        folder, reason = summary_writer.get_logdir(), str(error).partition("\n")[0]
        _logger.warning("the event file in %r cannot be written: %s", folder, reason)


class CheckpointHook(tf.compat.v1.train.CheckpointSaverHook):
    """TensorFlow's CheckpointSaverHook, which writes while training goes on.

    It saves at the same steps, with the same log lines, the same summary events and the
    same calls of listeners. Training waits for the snapshot of a step only; the last
    step's checkpoint is on the disk when `end` returns. Different from stock:

    * With listeners, training waits until a checkpoint is on the disk, and only then is
      their `after_save` called: they may read it.
    * If saves come faster than the disk takes them, then of those that go by the clock
      all but the newest are left out; those that go by steps wait for the one before.
    * What was just restored is not written again; listeners are called all the same.
    * A write that fails is logged, and raised as a CheckpointError at the next save, or
      at the end when the last step has been tried.
    * Where there can be no snapshot (see `snapshot`), training waits for the Saver.

    Args:
        hook: The CheckpointSaverHook in whose place it is; it has its settings, its
            timer and its list of listeners, to which more may be added.
        creator: `VerifiedSessionCreator` that tells what it has restored.
        writer: `CheckpointWriter` of the session.
        waits: Whether training waits for each checkpoint.
        clock: Gives seconds.

    Attributes:
        measures: `Measures` of the newest checkpoint on the disk, or None.
    """

    def __init__(self, hook, creator, writer, waits=False, clock=time.monotonic):
        # Not the constructor of a hook that is there already: it logs that.
        self.__dict__.update(vars(hook))
        self._original = hook
        self._creator = creator
        self._waits = waits
        self._clock = clock
        self._saved_at: float | None = None
        self._left_out: int | None = None  # the step that was to be saved last
        self.measures: Measures | None = None
        self._writer = writer
        self._restored: str | None = None
        self._target: Any = None  # where the checkpoints of this session go
        self._meta: bytes | None = None
        self._claim: Claim | None = None  # while there is a session

    def begin(self):
        """Begin, also for the hook in whose place this is."""
        super().begin()
        # A program may keep that one, and save by it out of turn.
        for name in ("_summary_writer", "_global_step_tensor"):
            setattr(self._original, name, getattr(self, name))

    def after_create_session(self, session, coord):
        """Save the variables that the session starts with, unless it restored them."""
        self.settle_checkpoints()
        self._claim = Claim(os.path.dirname(self._save_path))
        self._restored = self._creator.restored_prefix
        self._target = None
        with graph_written(self._checkpoint_dir):
            super().after_create_session(session, coord)
        if self._save_graph_def and self._target is None:  # nothing was saved here
            # Now, for its .meta files: runs of steps will add their loop to the graph.
            self._target = self._make_target(session)
        self._restored = None

    def end(self, session):
        """Save the last step, and wait until it is on the disk.

        Raises:
            CheckpointError: If that, or a save before, has failed; the last step is
                tried all the same.
        """
        last_step = session.run(self._global_step_tensor)
        is_saved = last_step == self._timer.last_triggered_step() != self._left_out
        if not is_saved:
            self._save(session, last_step, is_last=True)
        self._writer.close()
        for listener in self._listeners:
            listener.end(session, last_step)

    def settle_checkpoints(self):
        """Wait until nothing is being written, unless a second signal says not to."""
        try:
            if not preemption.is_hurried():
                self._writer.wait()
        finally:
            if self._claim is not None:
                self._claim.release()
        if self.measures is not None:
            with _only_logged(self._summary_writer):
                self._summary_writer.flush()

    def _save(self, session, step, is_last=False):
        """Save a step as TensorFlow's hook does; tell whether training is to stop."""
        self._left_out = None
        if _follows_cost(self) and self._writer.is_busy and not is_last:
            # What the one under way costs is not known yet. A snapshot would be paid
            # for, and a newer one take its place.
            self._left_out = step
            return False
        start = self._clock()
        by_clock = getattr(self._timer, "_every_secs", None) is not None
        series_of_clock = self if by_clock else None
        with preemption.saving():
            self._writer.make_room(instead_of=series_of_clock, raises=not is_last)
        waited_secs = self._clock() - start
        if self.measures is not None and _follows_cost(self):
            interval = self._timer._every_secs
            self._timer._every_secs = interval.at_cost(self.measures.cost_secs)
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
            with preemption.saving():
                self._write(session, step, waited_secs, series_of_clock)
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

    def _is_restored(self, step):
        """Tell whether the variables are as they are in this step's checkpoint."""
        saver = self._get_saver()
        if self._restored is None or self._creator.saver is not saver:
            return False
        prefix = series.prefix_of(saver, self._save_path, step)
        return os.path.abspath(prefix) == os.path.abspath(self._restored)

    def _write(self, session, step, waited_secs, series_of_clock):
        start = self._clock()
        since_secs = None if self._saved_at is None else start - self._saved_at
        self._saved_at = start
        if self._target is None:
            self._target = self._make_target(session)
        if isinstance(self._target, SaverTarget):
            size = self._target.save(step)
            self._note(step, size, waited_secs + self._clock() - start, 0.0, since_secs)
            return
        write, size = self._target.prepare(step)
        waits = self._waits or bool(self._listeners)
        blocked_secs = waited_secs + self._clock() - start

        def write_and_note():
            begun = self._clock()
            with preemption.saving():
                write()
            took_secs = self._clock() - begun
            waited, background = (took_secs, 0.0) if waits else (0.0, took_secs)
            self._note(step, size, blocked_secs + waited, background, since_secs)

        self._writer.submit(step, write_and_note, series_of_clock, self._save_path)
        if waits:
            self._writer.close()

    def _note(self, step, size, blocked_secs, write_secs, interval_secs):
        """Tell of a checkpoint that is on the disk."""
        self.measures = Measures(
            step=int(step),
            bytes=size,
            blocked_secs=blocked_secs,
            write_secs=write_secs,
            interval_secs=interval_secs,
        )
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=self._save_path)
        with _only_logged(self._summary_writer):
            self._summary_writer.add_session_log(log, step)
            self.measures.tell(self._summary_writer)

    def _make_target(self, session):
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
            target.meta = self._meta
        return target
