"""The record of a job: its model directory, logs, checkpoints and restarts."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

from estimator_runtime.checkpoint.checkpoint import step_in
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.tensor_bundle.table import TableError
from estimator_runtime.config.paths import is_local, step_of
from estimator_runtime.launch.outcome import Outcome
from estimator_runtime.launch.supervisor.file_thread import FileThread
from estimator_runtime.launch.supervisor.task_log import TaskLog
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Run, Task

# What a line takes beside its characters.
_PER_LINE = 100


class Record:
    """Collects the facts that the outcome of a job is made of.

    Everything that reads or writes a file does so on a thread: one for the logs, and
    one for the model directory. If a disk hangs, the methods return after two seconds
    at most, with what was known before.

    Args:
        logs: The log of every task.
        log_dir: Folder for the logs; None for "logs" in the model directory.
        say: Receives each line that is for the user.
        leader: The task that saves checkpoints.

    Attributes:
        files: The thread of the model directory.
        log_files: The thread of the logs.
        model_dir: The model directory, or None until a task has reported it. If the
            program trains several models, this is the directory of the last one.
        is_remote: Whether the model directory is in a file system that only TensorFlow
            can read. Its checkpoints are then not known here.
        restarts: The number of restarts.
    """

    def __init__(
        self,
        logs: Sequence[TaskLog],
        log_dir: str | None,
        say: Callable[[str], None] = lambda line: None,
        leader: Task | None = None,
    ) -> None:
        self._model_dirs: list[str] = []  # in the order in which they are trained
        # The index in `_model_dirs` of the model that each run is training.
        self._training: dict[Run, int] = {}
        self._logs, self._log_dir, self._leader = logs, log_dir, leader
        self._say = say
        self.files = FileThread("the model directory", say)
        self.log_files = FileThread("the logs", say, is_vital=False)
        # Each gives the reason why the job cannot go on, or None.
        self._answers: collections.deque[Future[str | None]] = collections.deque()
        self._scanning: Future[tuple[str | None, int | None, str | None]] | None = None
        self._spool: str | None = None
        for log in logs:
            log.say, log.spool, log.shared_by = say, self._spool_folder, len(logs)
        self.model_dir: str | None = None
        self.is_remote = False
        self.restarts = 0
        self._saved_step: int | None = None
        # The state of the files when `_saved_step` was read.
        self._saved_state: tuple[object, ...] | None = None

    def write(self, log: TaskLog, line: str) -> None:
        """Append a line to a log; its file lacks it if too much is waiting."""
        log.keep(line)
        if self.log_files.has_room:
            write = functools.partial(log.write_file, line)
            self.log_files.do(write, len(line) + _PER_LINE)
        else:
            log.is_whole = False

    def close(self) -> None:
        """Close all logs, and end the threads."""
        for log in self._logs:
            self.log_files.do(log.close)
        self.log_files.close()
        self.files.close()

    def start_logs(self, folder: str) -> str | None:
        """Move all logs to files in a folder, and write to them from now on.

        The folder is created if it does not exist.

        Returns:
            The reason why the folder cannot be used, or None; see `problem`.
        """
        self._begin_logs(folder)
        self.log_files.wait(self._answers[-1])
        return self.problem()

    def problem(self) -> str | None:
        """Return a reason why the job cannot go on, once; None if none is known."""
        for answer in tuple(self._answers):  # the other thread may add one
            if answer.done():
                self._answers.remove(answer)
                if (problem := answer.result()) is not None:
                    return problem
        return None

    def _begin_logs(self, folder: str) -> None:
        operation = functools.partial(self.open_logs, folder)
        self._answers.append(self.log_files.do(operation))

    def hear(self, run: Run, report: dict[str, Any]) -> str | None:
        """Record the folders that a report of a run names, if it names any.

        Returns:
            The reason why the job cannot go on, or None; see `problem`.
        """
        if "model_dir" not in report and "checkpoint_dir" not in report:
            return None
        taken = self.files.do(functools.partial(self._take, run, report))
        if self.files.wait(taken):
            for opened in tuple(self._answers):
                self.log_files.wait(opened)
        self._answers.append(taken)
        return self.problem()

    # These methods read and write files, and run on the thread for that.

    def open_logs(self, folder: str) -> str | None:
        """Do what `start_logs` does, in the calling thread."""
        for log in self._logs:
            try:
                log.open(folder)
            except OSError as error:
                return (
                    f"log folder {folder!r} cannot be written: {error.strerror}; give "
                    "another one with --log-dir"
                )
        self._say(f"the log of each task is in {folder}")
        if self._spool is not None:
            # Fails if a log had to stay there; then the folder is kept.
            with contextlib.suppress(OSError):
                os.rmdir(self._spool)
        return None

    def _take(self, run: Run, report: dict[str, Any]) -> str | None:
        problem = None
        if "model_dir" in report:
            problem = self.take_model_dir(run, report["model_dir"])
        if problem is None and "checkpoint_dir" in report:
            problem = self.take_checkpoint_dir(run.task, report["checkpoint_dir"])
        return problem

    def take_model_dir(self, run: Run, path: str) -> str | None:
        """Record the model directory that a run uses from now on.

        Every run of every task must use the same directories in the same order. A path
        with "://" is remote.

        Returns:
            The reason why the job cannot go on, or None if it can.
        """
        path, is_remote = _resolve(path)
        place = self._training.get(run, -1)
        if place >= 0 and self._model_dirs[place] == path:
            return None  # the run goes on training the same model
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

    def take_checkpoint_dir(self, task: Task, path: str) -> str | None:
        """Record the folder that a session of a task saves checkpoints to.

        The leader's folder counts as the model directory until an Estimator reports
        one. A session that the program creates itself may save anywhere, so the folders
        of other tasks are ignored.

        Returns:
            The reason why the job cannot go on, or None if it can.
        """
        path, is_remote = _resolve(path)
        is_there = is_remote or os.path.isdir(path)
        if task != self._leader or self.model_dir is not None or not is_there:
            return None
        self.model_dir, self.is_remote = path, is_remote
        return self._open_logs_there()

    def checkpoint(self) -> tuple[str | None, int | None]:
        """Return the path and the step of the checkpoint that a restart would restore.

        Both are None if there is no checkpoint, or if it is not known here.
        """
        found = self.scan()
        return found[:2] if found is not None else (None, None)

    def saved_step(self) -> int | None:
        """Return the step of `checkpoint()`, for a display.

        The checkpoint is verified again only after a file has been added or removed, or
        the state file has changed, because reading the index of a large model is slow.
        """
        self.files.ask(self._read_saved_step, None)
        return self._saved_step

    def _read_saved_step(self) -> None:
        state = self._state_of_files()
        if state is None or state != self._saved_state:
            self._saved_state = state
            _, self._saved_step, _ = self._scan()

    def with_lost_steps(
        self, outcome: Outcome, reached: int, folders: Collection[str]
    ) -> Outcome:
        """Return an outcome that names the steps up to `reached` that are not saved.

        It is returned unchanged for a job that has failed, or without a checkpoint. So
        it is if any of `folders`, where the steps were trained, is not the model
        directory: the program has trained another model then.
        """
        path = None if outcome.exit_status == 1 else outcome.checkpoint
        saved = None if path is None else step_of(path)
        if path is None or saved is None or saved >= reached:
            return outcome
        saved = self.files.ask(functools.partial(self._step_here, path, folders), None)
        if saved is None or saved >= reached:
            return outcome
        steps = f"after step {saved}, up to step {reached} or more"
        lost = f"lost: what was trained {steps}, is in no checkpoint"
        return dataclasses.replace(outcome, lost=lost)

    def _step_here(self, path: str, folders: Collection[str]) -> int | None:
        """Return the step of a checkpoint; None unless it is the one of all folders."""
        if any(_resolve(each)[0] != self.model_dir for each in folders):
            return None
        return _step_in(path) or step_of(path)

    def outcome(
        self,
        exit_status: int,
        reason: str,
        failed: TaskState | None = None,
        is_nan: bool = False,
        goes_on: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Return an outcome with everything that is known now.

        Args:
            exit_status: The exit status of the job.
            reason: What happened, in one line.
            failed: The task that failed first, or None.
            is_nan: Whether a loss was NaN. Then all values of the checkpoint are read,
                and a checkpoint with NaN is not reported as a good one.
            goes_on: Returns whether to wait on for a disk that does not answer; see
                `FileThread.wait`.
        """
        unknown: dict[str, Any] = {
            "unknown": f"as {self.model_dir or 'the disk'} does not answer"
        }
        self.log_files.do(self._restore_logs)
        if not self.log_files.drain():
            for log in self._logs:
                log.is_whole = False
        facts = self.files.ask(functools.partial(self._facts, is_nan), unknown, goes_on)
        if failed is not None:
            facts["task"], facts["excerpt"] = str(failed.task), failed.log.excerpt()
            facts["log"], facts["is_log_whole"] = failed.log.path, failed.log.is_whole
        return Outcome(
            exit_status=exit_status, reason=reason, restarts=self.restarts, **facts
        )

    def _restore_logs(self) -> None:
        for log in self._logs:
            log.restore()

    def _facts(self, is_nan: bool) -> dict[str, Any]:
        """Return the fields of an outcome that tell of the files of the job."""
        path, _, problem = self._scan()
        spoilt = None
        if is_nan and path is not None and self.model_dir is not None:
            # This import loads numpy, which only such a job should have to wait for.
            from estimator_runtime.checkpoint.restore import nan_scan

            # The scan reads every byte of the checkpoints, which may take minutes.
            self._say(nan_scan.LOOKING % self.model_dir)
            path, problem, spoilt = nan_scan.newest_good(self.model_dir)
        # The logs are still in the temporary folder if there never was another place.
        spool = self._spool if self._spool and os.path.isdir(self._spool) else None
        return {
            "checkpoint": path,
            "unknown": problem,
            "spoilt": spoilt,
            "log_dir": spool,
        }

    def _state_of_files(self) -> tuple[object, ...] | None:
        """Return a value that changes whenever the files in the model directory do."""
        if self.model_dir is None or self.is_remote:
            return None
        try:
            folder = os.stat(self.model_dir)
            state = os.stat(os.path.join(self.model_dir, "checkpoint"))
        except OSError:
            return None
        times = [(each.st_ino, each.st_mtime_ns) for each in (folder, state)]
        return self.model_dir, *times

    def scan(self) -> tuple[str | None, int | None, str | None] | None:
        """Return what `checkpoint()` does, and why that cannot be known here, if so.

        None stands for files that do not answer.
        """
        # A late answer is that of the next call.
        self._scanning = self._scanning or self.files.do(self._scan)
        if not self.files.wait(self._scanning):
            return None
        found, self._scanning = self._scanning.result(), None
        return found

    def _scan(self) -> tuple[str | None, int | None, str | None]:
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

    # The temporary folder for logs, used until the model directory is known, and for
    # good if it never is.

    def _open_logs_there(self) -> str | None:
        """Move the logs to the model directory, unless they belong elsewhere."""
        if self._log_dir is not None or self.model_dir is None or self.is_remote:
            return None
        folder = os.path.join(self.model_dir, "logs")
        if os.path.islink(folder):
            return (
                f"log folder {folder!r} is a symbolic link, which somebody else may "
                f"have made; give --log-dir {os.path.realpath(folder)!r} to write there"
            )
        self._begin_logs(folder)
        return None

    def _spool_folder(self) -> str:
        """Return the temporary folder; the first call creates it."""
        if self._spool is None:
            self._spool = tempfile.mkdtemp(prefix="estimator-runtime-logs-")
        return self._spool


def _resolve(path: str) -> tuple[str, bool]:
    """Return the absolute path of a model directory, and whether it is remote."""
    is_remote = not is_local(path)
    return path.rstrip("/") if is_remote else os.path.realpath(path), is_remote


def _step_in(path: str) -> int | None:
    """Return the global step in a checkpoint; None if it has none or cannot be read."""
    with contextlib.suppress(OSError, TableError):
        return step_in(path)
    return None
