"""The actions that policies return, and that the supervisor of a job executes."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

from estimator_runtime.launch.task import Task


@dataclasses.dataclass(frozen=True)
class Start:
    """Start a task that waits."""

    task: Task


@dataclasses.dataclass(frozen=True)
class Restart:
    """Schedule the next start of a task that has ended, and charge a restart if due."""

    task: Task
    at: float
    is_charged: bool = False


@dataclasses.dataclass(frozen=True)
class Terminate:
    """Set the time a task has to end, and send SIGTERM unless it ends by itself."""

    task: Task
    grace_secs: float
    is_signalled: bool = True


@dataclasses.dataclass(frozen=True)
class Kill:
    """Send SIGKILL to a task; the cause explains its end if the signal does not."""

    task: Task
    cause: str | None = None


@dataclasses.dataclass(frozen=True)
class GiveUp:
    """Treat a task that does not end after SIGKILL as ended."""

    task: Task


@dataclasses.dataclass(frozen=True)
class Release:
    """Go on without a task, however it ends; the outcome of the job has the reason."""

    task: Task
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class Fail:
    """Stop the job: it has failed, or somebody has asked for it.

    Attributes:
        reason: What happened, in one line.
        exit_status: The exit status of the job.
        task: The task that has failed, if one has.
        lets_save: Whether the trainers may save a checkpoint.
    """

    reason: str
    exit_status: int = 1
    task: Task | None = None
    lets_save: bool = False


@dataclasses.dataclass(frozen=True)
class Say:
    """Print a line for the user; a line with a key is printed only once."""

    line: str
    key: Hashable = None


Action = Start | Restart | Terminate | Kill | GiveUp | Release | Fail | Say
