"""Back ends, which run jobs, and the handle of a job that runs.

A back end is a class that a package registers as an entry point of the group
`estimator_runtime.backends`. Those of this package are registered in the same way.
"""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
from collections.abc import Mapping
from typing import Any, Protocol

from estimator_runtime import threads
from estimator_runtime.errors import ConfigError, UsageError
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.job_file import JobFile
from estimator_runtime.launch.outcome import Outcome
from estimator_runtime.launch.supervisor.supervisor import Supervisor
from estimator_runtime.launch.task import Tasks
from estimator_runtime.launch.terminal.screen import Screen

_GROUP = "estimator_runtime.backends"


class Backend(Protocol):
    """A back end: runs jobs on this machine, on a cluster, or elsewhere.

    `estimator-runtime run` calls its class with the keyword argument `console`, which
    shows lines to the user.
    """

    def submit(self, job: Job) -> JobHandle:
        """Start a job, and return its handle.

        Raises:
            ConfigError: If the job cannot run here. Nothing has been started then.
        """


class JobHandle(Protocol):
    """The handle of a job that runs."""

    def wait(self, timeout_secs: float | None = None) -> Outcome:
        """Wait for the end of the job, and return its outcome.

        Args:
            timeout_secs: How long to wait; None waits without a limit.

        Raises:
            TimeoutError: If the job is still running after that time.
            LaunchError: If no task could be started.
        """

    def has_ended(self, timeout_secs: float | None = 0.0) -> bool:
        """Return whether the job has ended, waiting for that for some time.

        Args:
            timeout_secs: How long to wait; None waits without a limit.
        """

    def cancel(
        self, exit_status: int = 1, reason: str = "the job was cancelled"
    ) -> None:
        """Stop the job after a last checkpoint; return at once, without waiting.

        A second call kills all tasks at once.

        Args:
            exit_status: The exit status of the outcome.
            reason: The reason that the outcome names.
        """

    def model_dir(self) -> str | None:
        """Return the model directory, or None if no task has reported it yet."""


def get_backend(name: str, **options: Any) -> Backend:
    """Return a new back end.

    Args:
        name: "local", "ray", or the name of one that another package provides.
        **options: The keyword arguments of its class.

    Raises:
        UsageError: If there is no back end of that name.
        ConfigError: If it cannot be imported.
    """
    found = importlib.metadata.entry_points(group=_GROUP)
    if name not in found.names:
        names = ", ".join(sorted(found.names)) or "none; install the package again"
        for_it = ", or 'estimator-runtime render'" if name == "kubernetes" else ""
        raise UsageError(f"there is no back end {name!r}; there are {names}{for_it}")
    try:
        backend = found[name].load()
    except ImportError as error:
        raise ConfigError(f"back end {name!r} cannot be imported: {error}") from error
    return backend(**options)


class SupervisedJob(Supervisor):
    """A `JobHandle` of a job whose supervisor runs in a thread of this process.

    The job ends with this process at the latest. The thread that starts the
    fork server must live until that is ready, because the kernel kills it when that
    thread ends.

    Args:
        job: The job.
        tasks: Starts and watches its tasks.
        screen: Shows their lines.
        backend: The name of the back end, for `estimator-runtime ps`.
    """

    def __init__(self, job: Job, tasks: Tasks, screen: Screen, backend: str) -> None:
        super().__init__(job, tasks, screen, job_file=JobFile(job, backend))
        self._outcome: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        self._thread = threads.start("supervisor", self._supervise)

    def wait(self, timeout_secs: float | None = None) -> Outcome:
        """Wait for the end of the job; see `JobHandle.wait`."""
        if not self.has_ended(timeout_secs):
            raise TimeoutError(f"the job is still running after {timeout_secs} s")
        return self._outcome.result()

    def has_ended(self, timeout_secs: float | None = 0.0) -> bool:
        """Return whether the job has ended; see `JobHandle.has_ended`."""
        self._thread.join(timeout_secs)
        return not self._thread.is_alive()

    def _supervise(self) -> None:
        try:
            self._outcome.set_result(self.run())
        except BaseException as error:  # noqa: BLE001 - raised from wait()
            self._outcome.set_exception(error)


def check_launch(environ: Mapping[str, str]) -> None:
    """Raise a ConfigError if the environment of the launcher has a TF_CONFIG."""
    if "TF_CONFIG" in environ:
        raise ConfigError(
            "TF_CONFIG is set in the environment, and the launcher makes one for each "
            "task; unset TF_CONFIG, or leave out --workers, --ps, --evaluator and "
            "--backend to run one task"
        )
