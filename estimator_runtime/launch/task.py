"""Tasks, their runs, the events of a run, and the protocol that starts them.

A back end only has to implement `Tasks`. The supervisor does the rest, in the same way
for processes on this machine and on others. Events reach it through one queue.
"""

import dataclasses
import json
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

# Limit for the lines in the queue, in characters, and what an event adds to its line.
_MAX_WAITING = 1 << 20
_PER_EVENT = 100
# The interval between two checks whether there is room for lines again.
_WAIT_SECS = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task of a job, whichever process runs it.

    Attributes:
        type: Its task type, such as "worker".
        index: Its index among the tasks of that type.
    """

    type: str
    index: int

    def __str__(self) -> str:
        # A job has only one task of these types.
        is_single = self.type in ("chief", "evaluator")
        return self.type if is_single else f"{self.type} {self.index}"

    @property
    def file_name(self) -> str:
        """The name of its log file."""
        return f"{self.type}-{self.index}.log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a task: 0 is the first attempt; each restart is one more.

    Events of an earlier run are ignored.
    """

    task: Task
    attempt: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """A line that a run wrote to standard output or error, without its line break."""

    run: Run
    line: str
    is_error: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reported:
    """A report that a run sends of itself; see `estimator_runtime.reporting`.

    It is a JSON object, and empty if it is a mere sign of life.
    """

    run: Run
    report: dict[str, Any]


def report_of(line: bytes) -> dict[str, Any]:
    """Return the report on a line; {} if the end of the task has cut it off."""
    try:
        return json.loads(line)
    except ValueError:
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Working:
    """A sign of life of a run that sends no reports: it uses the CPU."""

    run: Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a run; events for all its output and reports come before.

    Attributes:
        run: The run that ended.
        status: Its exit status; negative for a signal, as in `subprocess`.
        cause: How it ended, if the status does not tell; a text for the user.
        is_machine_lost: Whether its machine or its address there is gone, so that it
            cannot be restarted.
    """

    run: Run
    status: int
    cause: str | None = None
    is_machine_lost: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lost:
    """The job cannot go on, for this reason, and counts its tasks as killed.

    The back end has lost all tasks, or `close` kills those that still run.
    """

    reason: str


class Tasks(Protocol):
    """The part of a back end that starts, watches and kills tasks and reads their logs.

    Everything that happens to the tasks is put as an event into the queue that `open`
    gets.
    """

    def open(self, events: "Events", is_cancelled: Callable[[], bool]) -> None:
        """Prepare to start tasks; from now on events may arrive.

        Args:
            events: The queue for events.
            is_cancelled: Returns whether the job has been cancelled. If so, `open`
                returns early, and no task is started.

        Raises:
            LaunchError: If no task can be started.
        """

    def place(self, addressed: tuple[Task, ...]) -> Mapping[Task, str]:
        """Return an address for every task, on which the task can listen once started.

        Args:
            addressed: The tasks that need an address.

        Raises:
            LaunchError: If there is no place for them.
        """

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run; one that cannot be started ends at once, with the cause.

        Args:
            run: The run.
            environ: Environment variables, in addition to those of the job.
        """

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run and its children; do nothing if it has ended."""

    def close(self) -> None:
        """Kill all tasks that still run, and release all resources."""


class Events:
    """A queue of events in the order in which they happened; `put` never blocks.

    Lines of output must not fill the memory, so the code that reads them from the tasks
    calls `wait_for_room` first. Until that returns, it leaves the lines in the pipes,
    where the tasks wait for room, and puts only other events, which are few.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()

    def put(self, event: "Event") -> None:
        """Add an event; any thread may call this method."""
        self._count(event, 1)
        self._queue.put(event)

    def get(self, timeout_secs: float) -> "Event":
        """Remove the next event and return it.

        Args:
            timeout_secs: How long to wait for one.

        Raises:
            queue.Empty: If there is none in that time.
        """
        event = self._queue.get(timeout=timeout_secs)
        self._count(event, -1)
        return event

    def takes_lines(self) -> bool:
        """Return whether there is room for lines."""
        return self._waiting < _MAX_WAITING

    def wait_for_room(self, is_over: threading.Event) -> None:
        """Wait until there is room for lines, or `is_over` is set."""
        while not self.takes_lines() and not is_over.is_set():
            is_over.wait(_WAIT_SECS)

    def _count(self, event: "Event", sign: int) -> None:
        if isinstance(event, Output):
            with self._lock:
                self._waiting += sign * (len(event.line) + _PER_EVENT)


Event = Output | Reported | Working | Ended | Lost
