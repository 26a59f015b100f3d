"""A job under way, and what every back end refuses before it starts one."""

import os
import threading

from estimator_runtime.errors import ConfigError


class SupervisedJob:
    """A job whose supervisor runs here; ends at the latest with this process.

    The thread that starts the processes lives as long as the job, as it must: the
    kernel kills them when it ends.
    """

    def __init__(self, supervisor):
        self._supervisor = supervisor
        self._outcome = None
        self._failure = None
        self._thread = threading.Thread(
            target=self._run, name="estimator_runtime supervisor", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_secs=None):
        """Wait for the end of the job; see `JobHandle.wait`."""
        self._thread.join(timeout_secs)
        if self._thread.is_alive():
            raise TimeoutError(f"the job is still running after {timeout_secs} s")
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def cancel(self, exit_status=1, reason="the job was cancelled"):
        """Stop the job in order; see `JobHandle.cancel`.

        Args:
            exit_status: That of the outcome.
            reason: That of the outcome.
        """
        self._supervisor.cancel(exit_status, reason)

    def state(self):
        """Tell how far the job is; see `JobHandle.state`."""
        return self._supervisor.state

    def model_dir(self):
        """Give the model directory; see `JobHandle.model_dir`."""
        return self._supervisor.model_dir

    def _run(self):
        try:
            self._outcome = self._supervisor.run()
        except BaseException as error:  # noqa: BLE001 - raised from wait()
            self._failure = error


def check_environ(environ):
    """Refuse a TF_CONFIG of the launcher's own.

    Raises:
        ConfigError: If there is one.
    """
    if "TF_CONFIG" in environ:
        raise ConfigError(
            "TF_CONFIG is set in the environment, and the launcher makes one for each "
            "task; unset TF_CONFIG, or leave out --workers, --ps, --evaluator and "
            "--backend to run one task"
        )


def check_log_dir(job):
    """Make the folder for logs, if the job names one.

    Raises:
        ConfigError: If it cannot be made or written.
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
