"""How far a job is, as numbers; `view` shows them."""

import collections
import dataclasses

_EVERY_SECS = 1.0
# Rates are of so long: what is reported once a second would make them jump.
_RATE_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskStatus:
    """How far a task is.

    Attributes:
        name: The task, as text.
        state: What it does, where it does not train: "done", "starting", ...; or None.
        step: The global step that it reported last, or None.
        rate: Steps a second that it trains itself, or None.
        loss: The loss that it logged last, or None.
        metrics: Name to value of its last evaluation; empty if there was none.
    """

    name: str
    state: str | None = None
    step: int | None = None
    rate: float | None = None
    loss: float | None = None
    metrics: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobStatus:
    """How far a job is.

    Attributes:
        elapsed_secs: Since the first look.
        step: The global step.
        last_step: That at which the training ends, or None if nobody knows.
        rate: Global steps a second, or None if there were none yet.
        saved_step: That of the newest checkpoint, or None.
        restarts: How many there were.
        tasks: The `TaskStatus` of each.
    """

    elapsed_secs: float
    step: int
    last_step: int | None
    rate: float | None
    saved_step: int | None
    restarts: int
    tasks: tuple[TaskStatus, ...]

    @property
    def loss(self):
        """The loss of the first task that logs one: the chief, where there is one."""
        known = (task.loss for task in self.tasks if task.loss is not None)
        return next(known, None)


class Status:
    """Looks at the tasks of a job, at most once a second."""

    def __init__(self, watches, record):
        """Know the `Watch` of every task, and the `Record` of the job."""
        self._watches, self._record = watches, record
        self._first = self._last = None
        self._total = _Rate()
        self._rates = {}  # by run: a restarted task counts anew

    def look(self, now):
        """Give the `JobStatus`; None if it is too early to look again."""
        if self._last is not None and now - self._last < _EVERY_SECS:
            return None
        self._first = now if self._first is None else self._first
        self._last = now
        step = self._step()
        last_steps = (watch.report.get("last_step") for watch in self._watches)
        return JobStatus(
            elapsed_secs=now - self._first,
            step=step or 0,
            last_step=next((each for each in last_steps if each is not None), None),
            # Not from 0 on: the first step that is heard of may be a restored one.
            rate=None if step is None else self._total.after(step, now),
            saved_step=self._record.saved_step(),
            restarts=self._record.restarts,
            tasks=tuple(self._status_of(watch, now) for watch in self._watches),
        )

    def _step(self):
        """Give the global step; None as long as nobody has told it."""
        # A restored checkpoint may be older: the newest of those who run now counts,
        # and at the end that of those who did.
        reporting = [watch for watch in self._watches if "step" in watch.report]
        running = [watch for watch in reporting if watch.is_running]
        steps = [
            max(watch.report["step"], watch.report.get("trained") or 0)
            for watch in running or reporting
        ]
        return max(steps, default=None)

    def _status_of(self, watch, now):
        report = watch.report
        rate = None
        if watch.is_running and "steps_here" in report:
            known = self._rates.setdefault(watch.run, _Rate())
            rate = known.after(report["steps_here"], now)
        return TaskStatus(
            name=str(watch.task),
            state=_state(watch, now),
            step=report.get("step"),
            rate=rate,
            loss=report.get("loss"),
            metrics=report.get("metrics", {}),
        )


class _Rate:
    """How fast a count grows, over the last seconds; None until it has."""

    def __init__(self):
        # (time, count)
        self._changes: collections.deque[tuple[float, int]] = collections.deque()

    def after(self, count, now):
        """Give the rate, with the count of now."""
        changes = self._changes
        if changes and count < changes[-1][1]:
            changes.clear()  # it counts from an older checkpoint
        if len(changes) == 1 and count == changes[0][1]:
            changes.clear()  # it has not begun
        if not changes or count != changes[-1][1]:
            changes.append((now, count))
        if len(changes) < 2:
            return None
        # Two are left of one that is slow, or stands still.
        while len(changes) > 2 and now - changes[1][0] > _RATE_SECS:
            changes.popleft()
        begun_at, begun = changes[0]
        return (count - begun) / (now - begun_at)


def _state(watch, now):
    if watch.restart_at is not None:
        secs = max(0.0, watch.restart_at - now)
        return f"restarting in {secs:.0f} s" if secs else "restarting"
    if not watch.is_running:
        if watch.run is None:
            return "not started"
        return "done" if watch.has_ended_well else watch.how_it_ended()
    if watch.is_named_silent:
        return f"no sign of life for {now - watch.heard_at:.0f} s"
    return None if watch.report.keys() & {"step", "metrics"} else "running"
