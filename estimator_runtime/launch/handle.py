"""The handle of a running job, and the checks that a back end makes before it."""

from __future__ import annotations

import os
import threading
from collections.abc import Container
from typing import TYPE_CHECKING, cast

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import Outcome

if TYPE_CHECKING:
    from estimator_runtime.launch.supervisor.supervisor import Supervisor


class SupervisedJob:
    """A job whose supervisor runs in a thread of this process.

    The job ends with this process at the latest. The thread that starts the processes
    of the tasks must live as long as the job, because the kernel kills these processes
    when that thread ends.

    Args:
        supervisor: The supervisor, which starts to run at once.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._outcome: Outcome | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name="estimator_runtime supervisor", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_secs: float | None = None) -> Outcome:
        """Wait for the end of the job and return its outcome; see `JobHandle.wait`."""
        self._thread.join(timeout_secs)
        if self._thread.is_alive():
            raise TimeoutError(f"the job is still running after {timeout_secs} s")
        if self._failure is not None:
            raise self._failure
        return cast(Outcome, self._outcome)

    def cancel(
        self, exit_status: int = 1, reason: str = "the job was cancelled"
    ) -> None:
        """Stop the job in an orderly way; see `JobHandle.cancel`.

        Args:
            exit_status: The exit status of the outcome.
            reason: The reason that the outcome names.
        """
        self._supervisor.cancel(exit_status, reason)

    def state(self) -> str:
        """Return the state of the job; see `JobHandle.state`."""
        return self._supervisor.state

    def model_dir(self) -> str | None:
        """Return the model directory; see `JobHandle.model_dir`."""
        return self._supervisor.model_dir

    def _run(self) -> None:
        try:
            self._outcome = self._supervisor.run()
        except BaseException as error:  # noqa: BLE001 - raised from wait()
            self._failure = error


def check_environ(environ: Container[str]) -> None:
    """Check that the launcher itself has no TF_CONFIG in its environment.

    Args:
        environ: The environment, such as `os.environ`.

    Raises:
        ConfigError: If TF_CONFIG is set.
    """
    if "TF_CONFIG" in environ:
        raise ConfigError(
            "TF_CONFIG is set in the environment, and the launcher makes one for each "
            "task; unset TF_CONFIG, or leave out --workers, --ps, --evaluator and "
            "--backend to run one task"
        )


def check_log_dir(job: Job) -> None:
    """Create the folder for logs, if the job names one, and check that it is writable.

    Raises:
        ConfigError: If the folder cannot be created or written.
    """
    if job.log_dir is None:
        return
    try:
        os.makedirs(job.log_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"log folder {job.log_dir!r} cannot be made: {error.strerror}; give "
            "another one"
        ) from error
    if not os.access(job.log_dir, os.W_OK | os.X_OK):
        raise ConfigError(
            f"log folder {job.log_dir!r} cannot be written by this process; change its "
            "permissions, or give another one"
        )
