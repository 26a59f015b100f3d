"""What is known of a job as a whole: its folder, its logs, its checkpoints."""

import os
import tempfile

from estimator_runtime.checkpoint import recovery
from estimator_runtime.launch.outcome import Outcome


class Record:
    """Gathers what the outcome of a job is made of.

    Attributes:
        model_dir: The model directory, once a task has said which it is, or None.
        is_remote: Whether that is in a file system that only TensorFlow reads; its
            checkpoints are not known here.
        restarts: How many restarts there were.
    """

    def __init__(self, logs, log_dir, say=lambda line: None):
        """Keep the tasks' logs.

        Args:
            logs: The `TaskLog` of every task.
            log_dir: Folder for them; None takes "logs" in the model directory.
            say: Called with a line for the user.
        """
        self._logs, self._log_dir = logs, log_dir
        for log in logs:
            log.say = say
        self.model_dir = None
        self.is_remote = False
        self.restarts = 0

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
        return None

    def take_model_dir(self, task, path):
        """Take note of the model directory that a task has.

        Returns:
            Why the job cannot go on; None if it can.
        """
        is_remote = "://" in path
        path = path.rstrip("/") if is_remote else os.path.realpath(path)
        if self.model_dir is None:
            self.model_dir, self.is_remote = path, is_remote
            own = _new_folder() if is_remote else os.path.join(path, "logs")
            return self.open_logs(self._log_dir or own)
        if path == self.model_dir:
            return None
        return (
            f"{task} has the model_dir {path!r}, and another task {self.model_dir!r}; "
            "give all tasks the same, such as RunConfig(model_dir=...)"
        )

    def checkpoint(self):
        """Give the checkpoint that a restart would go on from, as (path, step).

        Both are None if there is none, or if the folder cannot be read from here.
        """
        if self.model_dir is None or self.is_remote:
            return None, None
        try:
            found, _, _ = recovery.plan(self.model_dir)
        except OSError:
            found = None
        return (found.prefix, found.step) if found else (None, None)

    def outcome(self, exit_status, reason, watch=None):
        """Make an `Outcome`.

        Args:
            exit_status: That of the job.
            reason: What happened.
            watch: The `Watch` of the task that failed first, or None.
        """
        if watch is not None and watch.log.path is None:
            # It failed before it said where its model directory is.
            self.open_logs(self._log_dir or _new_folder())
        path, _ = self.checkpoint()
        return Outcome(
            exit_status=exit_status,
            reason=reason,
            task=None if watch is None else str(watch.task),
            excerpt=() if watch is None else watch.log.excerpt(),
            log=None if watch is None else watch.log.path,
            is_log_whole=watch is None or watch.log.problem is None,
            checkpoint=path,
            restarts=self.restarts,
        )


def _new_folder():
    return tempfile.mkdtemp(prefix="estimator-runtime-logs-")
