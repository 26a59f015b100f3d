"""Back ends, which run jobs, by their names."""

import importlib
from typing import Any, Protocol

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import Outcome

_BACKENDS = {
    "local": "estimator_runtime.launch.local.backend:LocalBackend",
    "ray": "estimator_runtime.launch.ray.backend:RayBackend",
}


class JobHandle(Protocol):
    """The handle of a job that has been submitted."""

    def wait(self, timeout_secs: float | None = None) -> Outcome:
        """Wait for the end of the job, and return its outcome.

        Args:
            timeout_secs: How long to wait; None waits without a limit.

        Raises:
            TimeoutError: If the job is still running after that time.
        """

    def cancel(
        self, exit_status: int = 1, reason: str = "the job was cancelled"
    ) -> None:
        """Stop the job after a last checkpoint; return at once, without waiting.

        Args:
            exit_status: The exit status of the outcome.
            reason: The reason that the outcome names.
        """

    def state(self) -> str:
        """Return "starting", "running", "stopping", "succeeded" or "failed"."""

    def model_dir(self) -> str | None:
        """Return the model directory, or None if no task has reported it yet."""


class Backend(Protocol):
    """A back end: runs jobs on this machine, on a cluster, or elsewhere."""

    def submit(self, job: Job) -> JobHandle:
        """Start a job, and return its handle.

        Raises:
            ConfigError: If the job cannot run here. Nothing has been started then.
        """


def get_backend(name: str, **options: Any) -> Backend:
    """Return a new back end.

    Args:
        name: "local" or "ray".
        **options: The keyword arguments of its class.

    Raises:
        ConfigError: If there is no back end of that name.
    """
    if name not in _BACKENDS:
        raise ConfigError(f"there is no back end {name!r}; use {', '.join(_BACKENDS)}")
    module, _, attribute = _BACKENDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)(**options)
