"""What to run: one program, as so many tasks of each type."""

import dataclasses
import math
from collections.abc import Mapping

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.resources import Resources
from estimator_runtime.launch.task import Task
from estimator_runtime.role import TaskType
from estimator_runtime.waits import STOP_GRACE_VARIABLE, stop_grace_secs

_TRAINERS = (TaskType.CHIEF, TaskType.WORKER)
_TYPES = (*_TRAINERS, TaskType.PS, TaskType.EVALUATOR)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A training job, whichever back end runs it.

    It ends when the chief and the workers have ended well and the last step is in a
    readable checkpoint; then the ps and the evaluator are released.

    Attributes:
        command: The arguments of `estimator-runtime run` for every task, such as
            ("train.py", "--model_dir=/ckpt") or ("-m", "package.train").
        replicas: Task type to the number of its tasks: chief (0 or 1), worker, ps,
            evaluator (0 or 1).
        resources: Task type to what each task of it takes, where the back end places
            tasks by that; one CPU where there is no entry.
        env: Variables of the tasks, beside those of this process.
        max_restarts: How often one task, or under a multi-worker strategy the whole
            gang, may be restarted.
        refill_restarts_secs: After so many seconds of progress without a failure a
            task, or the gang, has all its restarts again. Progress is steps that no run
            had reached before.
        heartbeat_timeout_secs: A task that sends no reports and uses no CPU for so
            long is killed, and counts as failed; after a third of it, it is named in
            the log.
        grace_secs: From SIGTERM, at which a task may save a checkpoint, to SIGKILL;
            what ESTIMATOR_RUNTIME_STOP_GRACE_SECS says by default, or 30.
        evaluation_timeout_secs: How long the evaluator may take after the training;
            None is as long as it gives signs of life.
        log_dir: Folder for the whole log of each task; None takes "logs" in the
            model directory.
    """

    command: tuple[str, ...]
    replicas: Mapping[str, int]
    resources: Mapping[str, Resources] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_restarts: int = 3
    refill_restarts_secs: float = 3600.0
    heartbeat_timeout_secs: float = 30.0
    grace_secs: float = dataclasses.field(default_factory=stop_grace_secs)
    evaluation_timeout_secs: float | None = None
    log_dir: str | None = None

    def __post_init__(self):
        """Check the values.

        Raises:
            ConfigError: If one cannot be used, or nobody would train.
        """
        if not self.command:
            raise ConfigError("Job: command is empty; name the script to run")
        for task_type, count in self.replicas.items():
            self._check_count(task_type, count)
        for task_type in self.resources:
            if task_type not in _TYPES:
                raise ConfigError(
                    f"Job: resources has the task type {task_type!r}; use {_TYPES}"
                )
        if not self.trainers:
            raise ConfigError(
                f"Job: replicas is {dict(self.replicas)}, where nobody trains; "
                "add a chief, or a worker"
            )
        if type(self.max_restarts) is not int or self.max_restarts < 0:
            raise ConfigError(
                f"Job: max_restarts is {self.max_restarts!r}; give a whole number, 0 "
                "for no restarts"
            )
        for name in (
            "heartbeat_timeout_secs",
            "evaluation_timeout_secs",
            "refill_restarts_secs",
        ):
            value = getattr(self, name)
            is_left_out = value is None and name == "evaluation_timeout_secs"
            is_number = isinstance(value, int | float) and 0 < value < math.inf
            if not (is_left_out or is_number):
                raise ConfigError(
                    f"Job: {name} is {value!r}; give a number of seconds above 0"
                    + (", or None" if name == "evaluation_timeout_secs" else "")
                )
        grace = self.grace_secs
        if not (isinstance(grace, int | float) and 0 <= grace < math.inf):
            raise ConfigError(
                f"Job: grace_secs is {grace!r}; give a number of seconds, 0 or more"
            )
        if STOP_GRACE_VARIABLE in self.env:
            raise ConfigError(
                f"Job: env sets {STOP_GRACE_VARIABLE}, which the launcher takes from "
                "grace_secs; give that instead"
            )
        if "TF_CONFIG" in self.env:
            raise ConfigError(
                "Job: env sets TF_CONFIG, which the launcher makes for each task; "
                "leave it out"
            )

    @property
    def tasks(self):
        """All tasks, in the order in which they are started."""
        order = (TaskType.PS, TaskType.CHIEF, TaskType.WORKER, TaskType.EVALUATOR)
        return tuple(
            Task(type=task_type, index=index)
            for task_type in order
            for index in range(self.replicas.get(task_type, 0))
        )

    def resources_of(self, task):
        """Give the `Resources` that a task takes."""
        return self.resources.get(task.type, Resources())

    @property
    def trainers(self):
        """The tasks that train; the first of them leads."""
        return tuple(task for task in self.tasks if task.type in _TRAINERS)

    @property
    def is_gang(self):
        """Whether one failure fails all trainers.

        So it is where several train without a ps: their all-reduce needs every one.
        """
        return not self.replicas.get(TaskType.PS) and len(self.trainers) > 1

    def _check_count(self, task_type, count):
        if task_type not in _TYPES:
            raise ConfigError(
                f"Job: replicas has the task type {task_type!r}; use {_TYPES}"
            )
        if type(count) is not int or count < 0:
            raise ConfigError(
                f"Job: replicas[{task_type!r}] is {count!r}; give a whole number, 0 "
                "or more"
            )
        if count > 1 and task_type in (TaskType.CHIEF, TaskType.EVALUATOR):
            raise ConfigError(
                f"Job: replicas[{task_type!r}] is {count}; there can be only one"
            )
