"""What of a job people want to see."""

import dataclasses

from estimator_runtime import folding, gpus, options
from estimator_runtime.option_values import check_progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Presentation:
    """What of a job people want to see.

    Attributes:
        progress: "bar", "plain", "none", or "auto".
        is_verbose: Whether every line is shown.
        expects_gpu: Whether it would tell something that TensorFlow finds no GPU.
    """

    progress: str = "auto"
    is_verbose: bool = False
    expects_gpu: bool = False

    @classmethod
    def of(cls, job, environ):
        """Read it from the environment of a job's tasks.

        Args:
            job: The `Job`.
            environ: The environment of this process.

        Raises:
            ConfigError: If a variable has a value that cannot be used.
        """
        environ = {**environ, **job.env}
        progress = environ.get(options.PROGRESS_VARIABLE, cls.progress)
        check_progress(progress, options.PROGRESS_VARIABLE)
        return cls(
            progress=progress,
            is_verbose=folding.is_verbose(environ),
            expects_gpu=gpus.are_here()
            or any(job.resources_of(task).gpus for task in job.tasks),
        )
