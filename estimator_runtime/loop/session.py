"""The session of a training: TensorFlow's MonitoredSession around this step loop."""

from __future__ import annotations

import contextlib
import functools
import logging
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint.hook import flush_event_files
from estimator_runtime.checkpoint.restore import nan_scan
from estimator_runtime.config import waits
from estimator_runtime.config.tf_config import count_trainers_with_ps
from estimator_runtime.loop.hooks.protocol import (
    AdoptingCreator,
    BackgroundHook,
    DisowningCreator,
    RestoringCreator,
)
from estimator_runtime.loop.packing.requests import PackingLog, is_remote
from estimator_runtime.loop.planned import HookedSession, PlannedSession
from estimator_runtime.loop.run_length import RunLength
from estimator_runtime.loop.step_kind import StepKind
from estimator_runtime.signals import request
from estimator_runtime.tf_internals import sessions

_logger = logging.getLogger(__name__)
_Saver = tf.compat.v1.train.CheckpointSaverHook
# How long a ps may take to say the step at which the loss was NaN.
_STEP_MS = 5_000
_NanLossError = tf.compat.v1.train.NanLossDuringTrainingError


class LoopSessionCreator(sessions.CoordinatedSessionCreator):
    """Creates the session below a `LoopSession`, and creates it again if it is lost.

    Args:
        *args: Positional arguments of TensorFlow's class.
        loop: As for `LoopSession`.
        steps_per_run: As for `LoopSession`.
        pack_transfers: As for `LoopSession`.
        **kwargs: Keyword arguments of TensorFlow's class.

    Attributes:
        watch: Watches for a stop request.
        run_length: The number of steps in one call of the session.
        hooked: The session that calls the hooks; None while there is none.
    """

    def __init__(
        self,
        *args: Any,
        loop: str,
        steps_per_run: int | str,
        pack_transfers: bool | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        saves = any(isinstance(hook, _Saver) for hook in self._hooks)
        self.watch = request.Watch(has_session=False, saves=saves)
        self.run_length = RunLength(steps_per_run, waits.stop_grace_secs())
        self.hooked: HookedSession | None = None
        self._loop = loop
        self._packs_transfers = pack_transfers
        self._packing_log = PackingLog()
        if loop != "auto":
            self.run_length.rule_out(f"is run by the loop {loop!r}")
        self._graph = tf.compat.v1.get_default_graph()

    def create_session(self) -> Any:
        """Return a new session that runs this loop below TensorFlow's."""
        if self.hooked is not None:
            self.hooked.sync_hooks()
        self.hooked = None  # frees the memory of a lost session
        # The new session may be restored from what they write.
        _finish_background_work(self._hooks)
        creator = self._session_creator
        may_adopt = isinstance(creator, AdoptingCreator) and creator.may_adopt
        self.watch.has_session = may_adopt
        if may_adopt:
            creator.leave = self.watch.leave
        elif self.watch.is_requested:
            request.leave()
        try:
            # A lost session may be created again outside its graph's `with` block, or
            # in another thread.
            with request.creating_session(), self._graph.as_default():
                session = super().create_session()
        except BaseException:
            self.watch.has_session = False
            raise
        self.watch.has_session = True
        # Replace TensorFlow's hooked session, below the one that coordinates threads.
        session._sess = self.hooked = self._hooked_session()
        return session

    def _hooked_session(self) -> HookedSession:
        session, hooks = self.tf_sess, self._hooks
        if self._loop == "stock":
            return HookedSession(session, hooks)
        log = self._packing_log if self._packs(session) else None
        return PlannedSession(session, hooks, log, self.run_length)

    def _packs(self, session: Any) -> bool:
        """Return whether the transfers of a session's steps are to be packed."""
        if not is_remote(session):
            return False
        if self._packs_transfers is not None:
            return self._packs_transfers
        # Then the order of updates is chance anyway.
        return count_trainers_with_ps() > 1


class LoopSession(tf.compat.v1.train.MonitoredSession):
    """A MonitoredSession that runs steps by plans, or several of them at once.

    `step_kind` lists the ways in which a step may run, `hooks.protocol` what hooks
    and the session creator may offer.

    A signal stops the session between two steps; see `signals`. After the signal,
    `should_stop` returns True, the hooks' `end` saves the last step, and closing the
    session raises the exception that ends the program. If the program calls `run` again
    without checking `should_stop`, that call does the same.

    Args:
        *args: Positional arguments of MonitoredSession.
        loop: "auto"; "plans" to run steps one by one; "stock" for TensorFlow's loop.
        steps_per_run: The most steps in one call of the session, or "auto".
        pack_transfers: Whether the tensors of a step cross between tasks as packs. None
            packs them if several tasks train with parameter servers.
        **kwargs: Keyword arguments of MonitoredSession.
    """

    _hooks: list[Any]

    def __init__(
        self,
        *args: Any,
        loop: str = "auto",
        steps_per_run: int | str = 1,
        pack_transfers: bool | None = None,
        **kwargs: Any,
    ) -> None:
        # TensorFlow's constructor makes it.
        self._CoordinatedSessionCreator = functools.partial(
            LoopSessionCreator,
            loop=loop,
            steps_per_run=steps_per_run,
            pack_transfers=pack_transfers,
        )
        try:
            super().__init__(*args, **kwargs)
        except BaseException:
            if hasattr(self, "_coordinated_creator"):
                self._coordinated_creator.watch.end()
            raise
        self._watch = self._coordinated_creator.watch
        self._has_left = self._has_trained = False
        # A session that is never closed must not keep the signal handlers forever.
        weakref.finalize(self, self._watch.end).atexit = False

    @property
    def step_kind(self) -> StepKind | None:
        """The way in which the last step was run; None before the first one."""
        hooked = self._coordinated_creator.hooked
        return None if hooked is None else hooked.step_kind

    def should_stop(self) -> bool:
        """Return whether the training is over, for whatever reason."""
        return self._watch.is_requested or super().should_stop()

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: tf.compat.v1.RunOptions | None = None,
        run_metadata: tf.compat.v1.RunMetadata | None = None,
    ) -> Any:
        """Run a step with the hooks; see TensorFlow's `MonitoredSession`."""
        if self._watch.is_requested:
            self.close()
        results = self._sess.run(
            fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata
        )
        self._has_trained = True
        return results

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Run a function that may run steps; see TensorFlow's `MonitoredSession`."""
        self._has_trained = True  # perhaps
        creator = self._coordinated_creator
        creator.run_length.run_singly("is run by a function, through run_step_fn")
        if isinstance(creator.hooked, PlannedSession):
            creator.hooked.forget_end_of_data()  # the function may restart the data
        if self._watch.is_requested:
            self.close()
        return super().run_step_fn(step_fn)

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> bool:
        """Close the session, and save its last step if another session was stopped."""
        is_at_end = isinstance(exception_value, tf.errors.OutOfRangeError)
        if is_at_end and not self._has_trained:
            _logger.warning(
                "the input ended before a step was completed; check that it finds its "
                "files, and that no filter or drop_remainder removes every row"
            )
        nan_step = None
        if isinstance(exception_value, _NanLossError):
            nan_step = self._step()
        try:
            if request.is_stop(exception_value) and self._watch.has_session:
                self._close_internal()
                return False
            return super().__exit__(exception_type, exception_value, traceback)
        finally:
            if isinstance(exception_value, _NanLossError):
                creator = self._coordinated_creator._session_creator
                if isinstance(creator, DisowningCreator):
                    creator.disown_values()
                reads = isinstance(creator, RestoringCreator) and creator.checkpoint_dir
                # A launcher searches the folder for all its tasks.
                if reporting.is_on():
                    nan_scan.add_note(exception_value, None, nan_step)
                elif reads:
                    nan_scan.add_note(exception_value, creator.checkpoint_dir, nan_step)

    def _step(self) -> int | None:
        """Return the global step, which may be on a ps; None if unknown."""
        session, step = (
            self._coordinated_creator.tf_sess,
            tf.compat.v1.train.get_global_step(self._coordinated_creator._graph),
        )
        if session is None or step is None:
            return None
        options = tf.compat.v1.RunOptions(timeout_in_ms=_STEP_MS)
        # It is closed, or the ps is gone.
        with contextlib.suppress(tf.errors.OpError, RuntimeError):
            return int(session.run(step, options=options))
        return None

    def _close_internal(
        self, exception_type: type[BaseException] | None = None
    ) -> None:
        if self._has_left:  # `run` has closed it before the program does
            return
        creator = self._coordinated_creator
        if creator.hooked is not None:
            creator.hooked.sync_hooks()
        is_on = self._watch.is_on
        hooks = self._hooks
        self._hooks = [_unhurried(hook) for hook in hooks]
        try:
            try:
                super()._close_internal(exception_type)
            finally:
                self._hooks = hooks
                self._watch.end()
            if is_on and not exception_type:
                self._has_left = request.is_requested()
                request.leave(self._saved())
        finally:
            reporting.expect_no_steps()
            creator.hooked = None
            _finish_background_work(hooks)
            flush_event_files(hooks)

    def _saved(self) -> str:
        """Return the path of the checkpoint that the hooks have saved last, or ""."""
        for hook in self._hooks:
            # A hook of the program may not have called TensorFlow's constructor.
            folder = getattr(hook, "_checkpoint_dir", None)
            if isinstance(hook, _Saver) and folder:
                with contextlib.suppress(tf.errors.OpError):  # of remote storage
                    return tf.train.latest_checkpoint(folder) or ""
        return ""


def _finish_background_work(hooks: Iterable[Any]) -> None:
    """Wait for what the hooks do in the background, such as writing a checkpoint."""
    for hook in hooks:
        if isinstance(hook, BackgroundHook):
            hook.finish_background_work()


def _unhurried(hook: Any) -> Any:
    """Return what a session calls at its end in place of a hook.

    The grace period does not run out while a hook saves a checkpoint, however long that
    takes. It goes on in the `end` of any other hook, which may hang.
    """
    if not isinstance(hook, _Saver):
        return hook

    def end(session: Any) -> None:
        with request.saving():
            hook.end(session)

    return types.SimpleNamespace(end=end)
