"""A task, one run of it, what happens to it, and who starts it.

`Tasks` is all that a back end has to offer: the supervisor does the rest, the same for
processes of this machine and for those of another.
"""

import dataclasses
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from estimator_runtime.cluster import Cluster

if TYPE_CHECKING:
    from estimator_runtime.launch.events import Events


# What asks a job to end: its launcher, and through it, in order, its tasks.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A place in a job.

    Attributes:
        type: Its task type, such as "worker".
        index: Its index among the tasks of that type.
    """

    type: str
    index: int

    def __str__(self):
        return self.type if self.is_single else f"{self.type} {self.index}"

    @property
    def is_single(self):
        """Whether a job has only one task of this type."""
        return self.type in ("chief", "evaluator")

    @property
    def file_name(self):
        """The name of its log file."""
        return f"{self.type}-{self.index}.log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One life of a task: what is told of an earlier one no longer counts.

    Attributes:
        task: The task.
        attempt: 0 for the first run, 1 after its first restart, and so on.
    """

    task: Task
    attempt: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """A line that a task wrote, without its line break.

    Attributes:
        run: Who wrote it.
        line: The text.
        is_error: Whether it was written to standard error.
    """

    run: Run
    line: str
    is_error: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reported:
    """What a task reports of itself; see `estimator_runtime.reporting`.

    Attributes:
        run: Who reports.
        report: A JSON object; empty for a mere sign of life.
    """

    run: Run
    report: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Working:
    """A task that sends no reports uses the CPU: it is alive.

    Attributes:
        run: Who works.
    """

    run: Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a run; everything it wrote and reported comes before.

    Attributes:
        run: Who ended.
        status: Its exit status; that of a signal is negative, as in `subprocess`.
        cause: What became of it, where that is not in the status; for the user.
        is_displaced: Whether nobody can be started at its address any more.
    """

    run: Run
    status: int
    cause: str | None = None
    is_displaced: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaving:
    """All with an address are about to lose it; the user has been told."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refused:
    """The tasks must not go on where they are.

    Attributes:
        reason: Why, for the user.
    """

    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lost:
    """The back end can start and watch no more tasks; those it started are gone.

    Attributes:
        reason: Why, for the user.
    """

    reason: str


Event = Output | Reported | Working | Ended | Leaving | Refused | Lost


class Tasks(Protocol):
    """How tasks are started, watched, killed, and their logs read.

    What happens to them arrives as events in the queue given to `open`.
    """

    def open(self, events: "Events", is_cancelled: Callable[[], bool]) -> None:
        """Get ready to start tasks; from now on events may arrive.

        It returns early if the job is cancelled: then nothing is started.

        Raises:
            LaunchError: If no task can be started.
        """

    def place(self, addressed: tuple[Task, ...]) -> Cluster | None:
        """Give every task an address, which it can listen on when it is started.

        None is for "not yet": ask again soon.

        Raises:
            LaunchError: If there is no place for them.
        """

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a task with these variables beside those of the job."""

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run and its children; nothing if it has ended."""

    def close(self) -> None:
        """Kill what still runs, and free what was taken."""
