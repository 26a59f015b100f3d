"""The thread that writes checkpoints while training continues."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from estimator_runtime.errors import CheckpointError

_logger = logging.getLogger(__name__)
# How often a write that does not finish is logged. Training never gives up waiting: the
# checkpoint cannot be written elsewhere, and a signal can end the process.
_NAMED_EVERY_SECS = 30.0
_THREAD = "checkpoint writer"
_own = threading.local()  # `writers`: those that a thread has submitted writes to


def is_any_under_way() -> bool:
    """Return whether any session of this process is writing a checkpoint now."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


def wait_for_own() -> None:
    """Wait for all writes that this thread has submitted, in any session.

    Call this before you look for a checkpoint that TensorFlow's own hook would have
    written already: in the training thread, after the step that was due to be saved.
    """
    for each in _of_this_thread():
        each.wait()


def wait_before_save(save_path: str | bytes | os.PathLike[Any]) -> None:
    """Wait for writes of this thread to the folder that a Saver is about to write to.

    Args:
        save_path: Path of the Saver's checkpoints, with or without a step.
    """
    for each in _of_this_thread():
        if each.writes_to(_folder_of(save_path)):
            each.wait()


def _folder_of(save_path: str | bytes | os.PathLike[Any]) -> str:
    return os.path.dirname(os.path.abspath(os.fsdecode(save_path)))


def _of_this_thread() -> list[CheckpointWriter]:
    return list(getattr(_own, "writers", ()))


# A forked child inherits the writers with their locks, but not their threads.
os.register_at_fork(after_in_child=lambda: vars(_own).clear())


class CheckpointWriter:
    """A queue of writes that run on one background thread, in the order submitted.

    At most one write waits while another is under way. A write that fails is logged,
    and `close` raises its exception in the training thread. The thread ends when no
    write is left, and the process does not end before the thread does.

    Args:
        named_every_secs: How often a wait for a write is logged, in seconds.

    Attributes:
        last_step: Global step of the newest write that has completed, or None.
    """

    def __init__(self, named_every_secs: float = _NAMED_EVERY_SECS) -> None:
        self.last_step: int | None = None
        self._named_every_secs = named_every_secs
        self._writing_step: int | None = None
        self._changed = threading.Condition()
        # The step, the function and the series of the write that waits.
        self._waiting: tuple[int, Callable[[], object], object] | None = None
        self._is_running = False
        self._error: BaseException | None = None
        self._folders: set[str] = set()

    def make_room(self, instead_of: object = None) -> None:
        """Wait until you can submit a write and no other write is waiting.

        Args:
            instead_of: The `series` of a write to drop if it is waiting. Any other
                write that waits has to start first.
        """
        with self._changed:
            if self._waiting and instead_of and self._waiting[2] is instead_of:
                step = self._waiting[0]
                self._waiting = None
                _logger.warning(
                    "Skipping the checkpoint of step %d: the one before is still being "
                    "written, and a newer one is due.",
                    step,
                )
            self._wait_until(lambda: self._waiting is None)

    def submit(
        self,
        step: int,
        write: Callable[[], object],
        series: object = None,
        save_path: str | None = None,
    ) -> None:
        """Run `write` on the background thread, after the writes submitted before.

        Args:
            step: The global step of the checkpoint.
            write: Function that writes the checkpoint.
            series: Object that `make_room` identifies the write by, if it may be
                dropped; else None.
            save_path: Path of the checkpoint, without step and suffix.

        Raises:
            CheckpointError: If the thread cannot be started.
        """
        with self._changed:
            self._wait_until(lambda: self._waiting is None)
            if not self._is_running:
                # Not a daemon thread, so that the submitted checkpoints are written
                # however training ends. It waits for this lock.
                try:
                    threading.Thread(target=self._run, name=_THREAD).start()
                except RuntimeError as error:
                    raise CheckpointError(
                        f"the checkpoint of step {step} cannot be written: {error}; "
                        "allow this process more of them (ulimit -u, or pids.max of "
                        "its cgroup)"
                    ) from error
                self._is_running = True
            self._waiting = step, write, series
            if save_path is not None:
                self._folders.add(_folder_of(save_path))
            vars(_own).setdefault("writers", weakref.WeakSet()).add(self)

    def writes_to(self, folder: str) -> bool:
        """Return whether a write to a folder has been submitted."""
        return folder in self._folders

    def wait(self) -> None:
        """Wait until all writes have completed or failed."""
        with self._changed:
            self._wait_until(lambda: not self._is_running)

    def close(self) -> None:
        """Wait for all writes.

        Raises:
            Exception: The exception of a write that failed.
        """
        self.wait()
        with self._changed:
            error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way or waiting."""
        return self._is_running

    @property
    def has_failed(self) -> bool:
        """Whether a write has failed, and its exception has not been raised yet."""
        return self._error is not None

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        waited_secs = 0.0
        while not self._changed.wait_for(is_so, self._named_every_secs):
            waited_secs += self._named_every_secs
            _logger.warning(
                "Training has waited %g s for the checkpoint of step %s to be written; "
                "is its disk responding?",
                waited_secs,
                self._writing_step,
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._waiting is None:
                    self._is_running = False
                    self._changed.notify_all()
                    return
                self._writing_step, write, _ = self._waiting
                self._waiting = None
                self._changed.notify_all()
            try:
                write()
                self.last_step = self._writing_step
            except BaseException as error:
                # Logged here, because training may see the error only at its next save.
                is_ours = isinstance(error, CheckpointError)
                _logger.error("%s", error, exc_info=None if is_ours else error)
                self._error = self._error or error
            # Frees the values before the next snapshot is taken.
            del write
