"""The thread that writes checkpoints while training goes on."""

import logging
import os
import threading
import weakref

from estimator_runtime.checkpoint.state import STATE_FILE
from estimator_runtime.errors import CheckpointError

_logger = logging.getLogger(__name__)
# A disk that hangs is named this often. What was trained is not given up for it: the
# checkpoint cannot be written elsewhere, and a signal can end the process.
_NAMED_EVERY_SECS = 30.0
_THREAD = "checkpoint writer"
_own = threading.local()  # the writers that a thread has submitted to


def is_any_under_way():
    """Tell whether this process writes a checkpoint now, in whatever session."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


def wait_for_own():
    """Wait for the writes that this thread has submitted, in whatever session.

    For whoever looks for a checkpoint where TensorFlow's own hook would have written it
    already: in the thread that trains, after the step that was to be saved.
    """
    for each in _of_this_thread():
        each.wait()


def wait_before_save(save_path, state_file=None):
    """Wait so, where a Saver of this thread would write the same files or state file.

    Args:
        save_path: Path of its checkpoints, with or without a step.
        state_file: Name of its state file, or None for the usual one.
    """
    for each in _of_this_thread():
        if each.may_meet(save_path, state_file):
            each.wait()


def _of_this_thread():
    return list(getattr(_own, "writers", ()))


# A forked child has their locks as they were, and none of their threads.
os.register_at_fork(after_in_child=lambda: vars(_own).clear())


class CheckpointWriter:
    """Runs the writes of a session on one background thread, in the order submitted.

    At most one write waits behind the one under way. A write that fails is logged, and
    raised in the training thread, from the next `make_room` or from `close`. The thread
    ends when nothing is left to do, and the process does not end before it.

    Attributes:
        last_step: Global step of the newest write that was completed, or None.
    """

    def __init__(self, named_every_secs=_NAMED_EVERY_SECS):
        self.last_step = None
        self._named_every_secs = named_every_secs
        self._writing_step = None
        self._changed = threading.Condition()
        self._waiting = None
        self._is_running = False
        self._error = None
        self._save_paths: set[str] = set()

    def make_room(self, instead_of=None, raises=True):
        """Return as soon as a write can be submitted that need not wait for two.

        Args:
            instead_of: The `series` of a write that is dropped if it waits; else this
                waits until the one that waits is under way.
            raises: Whether an error is raised here; else it stays for `close`.

        Raises:
            Exception: What a write before has raised.
        """
        with self._changed:
            if raises:
                self._raise_error()
            if self._waiting and instead_of and self._waiting[2] is instead_of:
                step = self._waiting[0]
                self._waiting = None
                _logger.warning(
                    "The checkpoint of step %d is left out: the one before is still "
                    "being written, and a newer one has come.",
                    step,
                )
            self._wait_until(lambda: self._waiting is None)
            if raises:
                self._raise_error()

    def submit(self, step, write, series=None, save_path=None):
        """Run `write` on the background thread, after those submitted before.

        Args:
            step: The global step that it writes.
            write: Function without arguments.
            series: What `make_room` knows it by, if it may be dropped.
            save_path: Path of its checkpoint, without step and suffix.

        Raises:
            CheckpointError: If there can be no thread for it.
        """
        with self._changed:
            self._wait_until(lambda: self._waiting is None)
            self._waiting = step, write, series
            if save_path is not None:
                self._save_paths.add(os.path.abspath(save_path))
            vars(_own).setdefault("writers", weakref.WeakSet()).add(self)
            if not self._is_running:
                self._is_running = True
                try:
                    # No daemon: what was submitted is written, however training ends.
                    threading.Thread(target=self._run, name=_THREAD).start()
                except BaseException as error:
                    self._waiting, self._is_running = None, False
                    if not isinstance(error, RuntimeError):
                        raise
                    raise CheckpointError(
                        f"the checkpoint of step {step} cannot be written: {error}; "
                        "allow this process more of them (ulimit -u, or pids.max of "
                        "its cgroup)"
                    ) from error

    def may_meet(self, save_path, state_file):
        """Tell whether a Saver may write the same; see `wait_before_save`."""
        path = os.path.abspath(os.fsdecode(save_path))
        folder, name = os.path.split(path)
        return any(
            os.path.dirname(each) == folder
            and (
                state_file in (None, STATE_FILE)
                or name.startswith(os.path.basename(each))
            )
            for each in self._save_paths
        )

    def wait(self):
        """Wait until all writes are completed or have failed."""
        with self._changed:
            self._wait_until(lambda: not self._is_running)

    def close(self):
        """Wait for all writes.

        Raises:
            Exception: What one of them has raised.
        """
        self.wait()
        with self._changed:
            self._raise_error()

    @property
    def is_busy(self):
        """Whether a write is under way, or waits."""
        return self._is_running

    @property
    def error(self):
        """What a write has raised, and nobody has been told yet, or None."""
        return self._error

    def _wait_until(self, is_so):
        waited_secs = 0.0
        while not self._changed.wait_for(is_so, self._named_every_secs):
            waited_secs += self._named_every_secs
            _logger.warning(
                "Training has waited %g s for the checkpoint of step %s to be written; "
                "does its disk answer?",
                waited_secs,
                self._writing_step,
            )

    def _raise_error(self):
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self):
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
                # Which may hear of it only at its next save.
                is_ours = isinstance(error, CheckpointError)
                _logger.error("%s", error, exc_info=None if is_ours else error)
                self._error = self._error or error
            # Lets go of the values before the next ones are taken.
            del write
