"""The record of a job: its model directory, checkpoints and restarts."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.config.paths import is_local
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import Outcome
from estimator_runtime.launch.supervisor.file_worker import FileWorker
from estimator_runtime.launch.supervisor.log import Logs
from estimator_runtime.launch.task import Run, Task


class Newest(NamedTuple):
    """The checkpoint that a restart would restore.

    Attributes:
        path: Its path, or None.
        step: Its global step, or None.
        unknown: Why it cannot be known here, or None.
    """

    path: str | None = None
    step: int | None = None
    unknown: str | None = None


class Record:
    """Collects the facts that the outcome of a job is made of.

    Everything that reads or writes a file does so on a thread: one for the logs, and
    one for the model directory. If a disk hangs, a method returns after two seconds at
    most, with what was known before.

    Args:
        job: The job.
        say: Receives each line that is for the user.

    Attributes:
        logs: The logs of the tasks.
        files: The thread of the model directory.
        model_dir: The model directory, or None until a task has reported it. If the
            program trains several models, this is the directory of the last one.
        restarts: The number of restarts.
    """

    def __init__(
        self, job: Job, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._job, self._say = job, say
        self.logs = Logs(job.tasks, say, job.log_dir)
        self.files = FileWorker("the model directory", say)
        self._model_dirs: list[str] = []  # in the order in which they are trained
        # The index in `_model_dirs` of the model that each run is training.
        self._training: dict[Run, int] = {}
        # Reports that name a folder, which the thread takes in their order.
        self._named: collections.deque[tuple[Run, dict[str, Any]]] = collections.deque()
        self._saved_by: dict[str, Task] = {}  # the first task that saves to a folder
        self._problem: str | None = None
        self.model_dir: str | None = None
        self.restarts = 0
        self._saved_step: int | None = None
        # When the folder was changed that `_saved_step` was read from.
        self._changed_at: tuple[str, int] | None = None

    def hear(self, run: Run, report: dict[str, Any]) -> None:
        """Record the folders that a report of a run names, and why the run ends."""
        if "explanation" in report:
            self.logs.of[run.task].explain(report["explanation"])
        if "model_dir" in report or "checkpoint_dir" in report:
            self._named.append((run, report))
            self.files.put("folders", self._take_folders)
            self.files.wait("folders")

    def problem(self) -> str | None:
        """Return why the job cannot go on, or None if no reason is known."""
        return self._problem or self.logs.problem

    def check(self, now: float) -> None:
        """Write the logs, and name disks that hang; call this repeatedly."""
        self.files.check(now)
        self.logs.check(now)

    def close(self) -> None:
        """End the threads."""
        self.logs.worker.close()
        self.files.close()

    def newest(self) -> Newest | None:
        """Return the newest checkpoint; None if the disk does not answer in time."""
        return self.files.ask("newest", self._newest)

    def saved_step(self) -> int | None:
        """Return the step of the newest checkpoint, for a display.

        The checkpoint is verified again only after a file of the folder was added,
        replaced or removed, because reading the index of a large model is slow.
        """
        self.files.ask("saved step", self._read_saved_step)
        return self._saved_step

    def outcome(
        self,
        exit_status: int,
        reason: str,
        failed: Task | None = None,
        *,
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
                `FileWorker.ask`.
        """
        self.logs.flush()
        facts = self.files.ask("facts", lambda: self._facts(is_nan), goes_on)
        if facts is None:
            facts = {"unknown": f"as {self.model_dir or 'the disk'} does not answer"}
        if failed is not None:
            log = self.logs.of[failed]
            facts.update(task=str(failed), excerpt=log.excerpt(), log=log.path)
        return Outcome(
            exit_status=exit_status,
            reason=reason,
            restarts=self.restarts,
            log_dir=self.logs.spool,
            **facts,
        )

    # These methods read and write files, and run on the thread for that.

    def _take_folders(self) -> None:
        while self._named:
            run, report = self._named.popleft()
            if "model_dir" in report:
                problem = self._take_model_dir(run, report["model_dir"])
            else:
                problem = self._take_checkpoint_dir(run.task, report)
            self._problem = self._problem or problem

    def _take_model_dir(self, run: Run, path: str) -> str | None:
        """Record the model directory that a run uses from now on.

        Every run of every task must use the same directories in the same order.

        Returns:
            The reason why the job cannot go on, or None if it can.
        """
        path = _resolve(path)
        place = self._training.get(run, -1)
        if place >= 0 and self._model_dirs[place] == path:
            return None  # the run goes on training the same model
        self._training[run] = place = place + 1
        if place == len(self._model_dirs):
            self._model_dirs.append(path)
            self.model_dir = path
            return None if place else self._open_logs()
        if path == self._model_dirs[place]:
            return None
        return (
            f"{run.task} has the model_dir {path!r}, and another task "
            f"{self._model_dirs[place]!r}; give all tasks the same, such as "
            "RunConfig(model_dir=...)"
        )

    def _take_checkpoint_dir(self, task: Task, report: Mapping[str, Any]) -> str | None:
        """Record the checkpoint folder of a chief's session.

        The leader's folder counts as the model directory until an Estimator reports
        one. A session that the program creates itself may save anywhere.

        Returns:
            The reason why the job cannot go on, or None if it can.
        """
        path = _resolve(report["checkpoint_dir"])
        other = self._saved_by.setdefault(path, task) if report.get("saves") else task
        if other != task:
            return (
                f"{other} and {task} both save checkpoints to {path!r}: each trains "
                "alone there; a program that opens its own session has to take its "
                "place in the cluster from TF_CONFIG, by master=server.target and "
                "is_chief=..., or runs without --workers, --ps and --evaluator"
            )
        is_there = not is_local(path) or os.path.isdir(path)
        is_leader = task == self._job.trainers[0]
        if not is_leader or self.model_dir is not None or not is_there:
            return None
        self.model_dir = path
        return self._open_logs()

    def _open_logs(self) -> str | None:
        """Put the logs into the model directory, unless they belong elsewhere."""
        if self.model_dir is None or not is_local(self.model_dir):
            self.logs.open(None)
            return None
        folder = os.path.join(self.model_dir, "logs")
        if self._job.log_dir is None and os.path.islink(folder):
            return (
                f"log folder {folder!r} is a symbolic link, which somebody else may "
                f"have made; give --log-dir {os.path.realpath(folder)!r} to write there"
            )
        self.logs.open(folder)
        return None

    def _newest(self) -> Newest:
        if self.model_dir is None:
            return Newest(unknown="as no task has said where it saves them")
        if not is_local(self.model_dir):
            return Newest(unknown=f"as only TensorFlow reads {self.model_dir}")
        try:
            found, _ = recovery.scan(self.model_dir).plan()
        except FileNotFoundError:
            found = None
        except OSError as error:
            why = error.strerror or error
            return Newest(unknown=f"as {self.model_dir} cannot be read: {why}")
        return Newest(found.prefix, found.step) if found else Newest()

    def _read_saved_step(self) -> None:
        folder = self.model_dir
        if folder is None or not is_local(folder):
            return
        with contextlib.suppress(OSError):  # it does not exist yet
            changed_at = folder, os.stat(folder).st_mtime_ns
            if changed_at != self._changed_at:
                self._changed_at, self._saved_step = changed_at, self._newest().step

    def _facts(self, is_nan: bool) -> dict[str, Any]:
        """Return the fields of an outcome that tell of the checkpoints of the job."""
        path, _, unknown = self._newest()
        spoilt = None
        if is_nan and path is not None and self.model_dir is not None:
            # This import loads numpy, which only such a job should have to wait for.
            from estimator_runtime.checkpoint.restore import nan_scan

            # The scan reads every byte of the checkpoints, which may take minutes.
            self._say(nan_scan.LOOKING % self.model_dir)
            path, unknown, spoilt = nan_scan.newest_good(self.model_dir)
        return {"checkpoint": path, "unknown": unknown, "spoilt": spoilt}


def _resolve(path: str) -> str:
    """Return the absolute path of a model directory; a URL is only normalized."""
    return os.path.realpath(path) if is_local(path) else path.rstrip("/")
