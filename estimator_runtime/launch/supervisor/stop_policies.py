"""The policies that end tasks in time, and in order; see `policies`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from estimator_runtime.launch.supervisor.actions import (
    Action,
    GiveUp,
    Kill,
    Say,
    Terminate,
)
from estimator_runtime.launch.supervisor.machine import JobState, TaskPhase, TaskState

# Seconds for tasks that do not train. A ps has nothing to save, and an evaluator has
# finished its evaluation by then.
OTHERS_SECS = 2.0
# A process is gone within this time after SIGKILL, and so is a remote actor on Ray.
_GONE_SECS = 15.0

Policy = Callable[[JobState, float], Iterator[Action]]


def terminate(
    state: TaskState, grace_secs: float, is_signalled: bool = True
) -> Iterator[Action]:
    """Set the time a task has to end, unless it is ending already."""
    if state.phase in (TaskPhase.STARTING, TaskPhase.RUNNING):
        yield Terminate(state.task, grace_secs, is_signalled)


def kill_overdue(job: JobState, now: float) -> Iterator[Action]:
    """Kill a task that has not ended by its deadline."""
    for state in job.alive:
        last = state.last
        if state.phase is TaskPhase.STOPPING and now >= (last.stop_by or 0.0):
            within = f"within {last.grace_secs:g} s"
            yield Say(f"{state.task} did not end {within}: killing it")
            yield Kill(state.task)


def give_up_unkillable(job: JobState, now: float) -> Iterator[Action]:
    """Stop waiting for a task that does not end after SIGKILL.

    It hangs in the kernel, or the component that reports its end hangs.
    """
    for state in job.alive:
        killed_at = state.last.killed_at
        if killed_at is not None and now - killed_at >= _GONE_SECS:
            yield GiveUp(state.task)


def stop_in_order(job: JobState, now: float) -> Iterator[Action]:
    """End the tasks of a job that has to stop: the trainers first, while they can save.

    With a ps, each trainer trains on its own and the leader ends last, so that its
    checkpoint has the steps of all. If the leader applies the gradients of all trainers
    (SyncReplicasOptimizer), it ends first instead: it cannot finish its step without
    the others, and they have nothing to save. The tasks of a gang stop together.
    """
    if job.ending is None:
        return
    leader, *others = job.trainers
    is_nan = any(state.failure.is_nan for state in others)
    for state in job.alive:
        is_trainer = state.task in job.job.trainers
        has_no_time = job.is_hurried or (is_trainer and not job.ending.lets_save)
        # Its checkpoint would have the NaN too.
        is_spoilt = state is leader and is_nan
        if has_no_time or is_spoilt:
            if state.phase is not TaskPhase.KILLED:
                yield Kill(state.task)
        else:
            yield from _terminate_in_turn(job, state)


def _terminate_in_turn(job: JobState, state: TaskState) -> Iterator[Action]:
    """Send SIGTERM to a task if those that have to end before it have ended."""
    leader, *others = job.trainers
    if state.task not in job.job.trainers:
        earlier, secs = list(job.trainers), OTHERS_SECS
    elif job.job.is_gang:
        earlier, secs = [], job.job.grace_secs
    elif state is leader:
        earlier, secs = ([] if job.leads_steps else others), job.job.grace_secs
    elif job.leads_steps:
        earlier, secs = [leader], OTHERS_SECS
    else:
        earlier, secs = [], job.job.grace_secs
    if not any(it.is_alive for it in earlier):
        yield from terminate(state, secs)


IN_STOP: Sequence[Policy] = (kill_overdue, give_up_unkillable, stop_in_order)
