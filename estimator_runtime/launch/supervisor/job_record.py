"""What is known of a job as a whole: its folder, its logs, its checkpoints."""

import contextlib
import dataclasses
import os
import tempfile

from estimator_runtime.checkpoint import recovery
from estimator_runtime.launch.outcome import Outcome


class Record:
    """Gathers what the outcome of a job is made of.

    Attributes:
        model_dir: The model directory, once a task has said which it is, or None; of
            a program that trains several models, the last.
        is_remote: Whether that is in a file system that only TensorFlow reads; its
            checkpoints are not known here.
        restarts: How many restarts there were.
    """

    def __init__(self, logs, log_dir, say=lambda line: None, leader=None):
        """Keep the tasks' logs.

        Args:
            logs: The `TaskLog` of every task.
            log_dir: Folder for them; None takes "logs" in the model directory.
            say: Called with a line for the user.
            leader: The task that saves checkpoints.
        """
        self._model_dirs = []  # in the order of the trainings
        self._training = {}  # of each run, as a place among those
        self._logs, self._log_dir, self._leader = logs, log_dir, leader
        self._say = say
        self._spool: str | None = None
        for log in logs:
            log.say, log.spool = say, self._spool_folder
        self.model_dir: str | None = None
        self.is_remote = False
        self.restarts = 0
        self._saved_step: int | None = None
        self._saved_state: tuple | None = None  # of the files, as that was read

    def open_logs(self, folder):
        """Let all logs be files in `folder`.

        Returns:
            Why they cannot be; None if they are.
        """
        for log in self._logs:
            try:
                log.open(folder)
            except OSError as error:
                return (
                    f"log folder {folder!r} cannot be written: {error.strerror}; give "
                    "another one with --log-dir"
                )
        self._remove_spool()
        return None

    def hear(self, run, report):
        """Take note of what a run reports of its folders.

        Returns:
            Why the job cannot go on; None if it can.
        """
        problem = None
        if "model_dir" in report:
            problem = self.take_model_dir(run, report["model_dir"])
        if problem is None and "checkpoint_dir" in report:
            problem = self.take_checkpoint_dir(run.task, report["checkpoint_dir"])
        return problem

    def take_model_dir(self, run, path):
        """Take note of the model directory that a run of a task has from now on.

        Every run of every task has the same ones, in the same order.

        Returns:
            Why the job cannot go on; None if it can.
        """
        is_remote = "://" in path
        path = path.rstrip("/") if is_remote else os.path.realpath(path)
        place = self._training.get(run, -1)
        if place >= 0 and self._model_dirs[place] == path:
            return None  # it goes on training this model
        self._training[run] = place = place + 1
        if place == len(self._model_dirs):
            self._model_dirs.append(path)
            self.model_dir, self.is_remote = path, is_remote
            return None if place else self._open_logs_there()
        if path == self._model_dirs[place]:
            return None
        return (
            f"{run.task} has the model_dir {path!r}, and another task "
            f"{self._model_dirs[place]!r}; give all tasks the same, such as "
            "RunConfig(model_dir=...)"
        )

    def take_checkpoint_dir(self, task, path):
        """Take note of the folder that a session of a task saves to.

        That of the leader counts as the model directory while no Estimator has said
        which that is: a session of one's own may save where it likes.

        Returns:
            Why the job cannot go on; None if it can.
        """
        is_remote = "://" in path
        is_there = is_remote or os.path.isdir(path)
        if task != self._leader or self.model_dir is not None or not is_there:
            return None
        self.model_dir = path.rstrip("/") if is_remote else os.path.realpath(path)
        self.is_remote = is_remote
        return self._open_logs_there()

    def checkpoint(self):
        """Give the checkpoint that a restart would go on from, as (path, step).

        Both are None if there is none, or if it is not known here.
        """
        path, step, _ = self._look()
        return path, step

    def saved_step(self) -> int | None:
        """Return the step of `checkpoint()`, for a display.

        The checkpoint is verified only when a file has come or gone, or the state file
        has changed: to read the index of a large model takes long.
        """
        state = self._state_of_files()
        if state is None or state != self._saved_state:
            self._saved_state = state
            _, self._saved_step = self.checkpoint()
        return self._saved_step

    def why_unknown(self):
        """Say why it cannot be told here whether there is a checkpoint, or None."""
        _, _, problem = self._look()
        return problem

    def latest(self, outcome, is_nan=False):
        """Give an `Outcome` of before with the checkpoint that there is now.

        Args:
            outcome: The `Outcome`.
            is_nan: Whether a loss was NaN: then all values of the checkpoint are read,
                and one with NaN is not named as a good one.
        """
        self._restore_logs()
        path, _, problem = self._look()
        spoilt = None
        if is_nan and path is not None and self.model_dir is not None:
            path, problem, spoilt = self._look_for_nan(self.model_dir)
        return dataclasses.replace(
            outcome,
            checkpoint=path,
            unknown=problem,
            spoilt=spoilt,
            log_dir=self._kept_spool(),
        )

    def _state_of_files(self):
        if self.model_dir is None or self.is_remote:
            return None
        try:
            folder = os.stat(self.model_dir)
            state = os.stat(os.path.join(self.model_dir, "checkpoint"))
        except OSError:
            return None
        times = [(each.st_ino, each.st_mtime_ns) for each in (folder, state)]
        return self.model_dir, *times

    def _look(self):
        """Give (path, step) of the checkpoint, and why it is not known."""
        if self.model_dir is None:
            return None, None, "as no task has said where it saves them"
        if self.is_remote:
            return None, None, f"as only TensorFlow reads {self.model_dir}"
        try:
            found, _, _ = recovery.plan(self.model_dir)
        except FileNotFoundError:
            found = None
        except OSError as error:
            why = error.strerror or error
            return None, None, f"as {self.model_dir} cannot be read: {why}"
        return (found.prefix, found.step, None) if found else (None, None, None)

    def _look_for_nan(self, folder: str) -> tuple[str | None, str | None, str | None]:
        """Return the newest path without NaN, why it is not known, what is spoilt."""
        # Loads numpy, for which no other job has to wait.
        from estimator_runtime.checkpoint import nan_values

        # All of their bytes are read, which may take minutes.
        self._say(nan_values.LOOKING % folder)
        return nan_values.newest_good(folder)

    def outcome(self, exit_status, reason, watch=None):
        """Make an `Outcome`.

        Args:
            exit_status: That of the job.
            reason: What happened.
            watch: The `Watch` of the task that failed first, or None.
        """
        self._restore_logs()
        path, _, problem = self._look()
        return Outcome(
            exit_status=exit_status,
            reason=reason,
            task=None if watch is None else str(watch.task),
            excerpt=() if watch is None else watch.log.excerpt(),
            log=None if watch is None else watch.log.path,
            is_log_whole=watch is None or watch.log.is_whole,
            log_dir=self._kept_spool(),
            checkpoint=path,
            unknown=problem,
            restarts=self.restarts,
        )

    # Where the lines are until the model directory is known, and if that never is.

    def _open_logs_there(self):
        if self._log_dir is not None or self.model_dir is None or self.is_remote:
            return None  # they are open, or stay where they are
        return self.open_logs(os.path.join(self.model_dir, "logs"))

    def _spool_folder(self):
        if self._spool is None:
            self._spool = tempfile.mkdtemp(prefix="estimator-runtime-logs-")
        return self._spool

    def _restore_logs(self):
        for log in self._logs:
            log.restore()

    def _kept_spool(self):
        """Give the temporary folder, if the logs are still there, or None."""
        return self._spool if self._spool and os.path.isdir(self._spool) else None

    def _remove_spool(self):
        if self._spool is not None:
            # Not if a log had to stay there.
            with contextlib.suppress(OSError):
                os.rmdir(self._spool)
