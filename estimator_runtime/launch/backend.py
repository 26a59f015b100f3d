"""Where jobs run: back ends by name."""

import importlib
from typing import Protocol

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import Outcome

_BACKENDS = {
    "local": "estimator_runtime.launch.local:LocalBackend",
    "ray": "estimator_runtime.launch.ray:RayBackend",
}


class JobHandle(Protocol):
    """A job that was submitted."""

    def wait(self, timeout_secs: float | None = None) -> Outcome:
        """Wait for the end of the job; None waits as long as it takes.

        Raises:
            TimeoutError: If the job is still running then.
        """

    def cancel(self) -> None:
        """Let the tasks save a checkpoint and stop; returns at once."""

    def state(self) -> str:
        """Give "starting", "running", "stopping", "succeeded" or "failed"."""

    def model_dir(self) -> str | None:
        """Give the model directory, once a task has said which it is, or None."""


class Backend(Protocol):
    """A place that runs jobs."""

    def submit(self, job: Job) -> JobHandle:
        """Start a job.

        Raises:
            ConfigError: If it cannot run here; nothing has been started then.
        """


def get_backend(name: str, **options) -> Backend:
    """Give the back end called `name`.

    Args:
        name: "local" or "ray".
        **options: Those of its class.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name not in _BACKENDS:
        raise ConfigError(f"there is no back end {name!r}; use {', '.join(_BACKENDS)}")
    module, _, attribute = _BACKENDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)(**options)
