"""The policies of a job: pure functions of its state and the time that return actions.

A policy changes nothing. `supervisor` executes the actions, in their order. There are
three kinds of policies:

* `on_report` and `on_end` answer an event of one task.
* `IN_TRAINING` are asked again and again while the job goes on.
* `IN_STOP` are asked again and again once the job has to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from estimator_runtime.config.role import TaskType
from estimator_runtime.config.waits import IMPORT_SECS
from estimator_runtime.launch.outcome import EVALUATION_FAILED
from estimator_runtime.launch.supervisor.actions import (
    Action,
    Fail,
    GiveUp,
    Kill,
    Release,
    Restart,
    Say,
    Start,
    Terminate,
)
from estimator_runtime.launch.supervisor.machine import (
    NOT_NEEDED,
    JobState,
    TaskPhase,
    TaskState,
)
from estimator_runtime.launch.supervisor.record import Newest

# A task is named in the log when it has been silent for this fraction of the timeout.
_NAMED_AT = 1 / 3
# Freeing the memory of a large process takes long, above all on a busy machine.
_END_SECS = 120.0
# A shared folder may show a file only some time after another machine has written it:
# an NFS client caches the contents of a folder for 30 to 60 s (acdirmin, acdirmax). And
# a disk that hangs, or a file server that is gone, may answer again.
_LAST_CHECKPOINT_SECS = 600.0
# Seconds after which the user is told of such a wait.
_NAMED_SECS = 5.0
# Seconds after which the user is told of an evaluator that still runs.
_LONG_SECS = 60.0
# Seconds for tasks that do not train. A ps has nothing to save, and an evaluator has
# finished its evaluation by then.
OTHERS_SECS = 2.0
# A process is gone within this time after SIGKILL, and so is a remote actor on Ray.
_GONE_SECS = 15.0

Policy = Callable[[JobState, float], Iterator[Action]]


def on_report(
    job: JobState, state: TaskState, report: Mapping[str, Any]
) -> Iterator[Action]:
    """Report a training without steps, and a job that evaluates nothing."""
    if "stalled" in report:
        yield Say(
            f"{state.task} has taken no step for {report['stalled']:.0f} s; what it "
            "writes next is where each of its threads is"
        )
    if "model_dir" in report and not job.job.replicas.get(TaskType.EVALUATOR):
        # Only train_and_evaluate reports a model directory, and it takes an EvalSpec.
        yield Say("no task evaluates or exports; add --evaluator for that", "evaluator")


# The end of a run.


def on_end(job: JobState, state: TaskState, now: float) -> Iterator[Action]:
    """Decide what follows the end of a run: a restart, a release, or a failure.

    A task that fails is restarted while its budget lasts, a gang as a whole. Without a
    budget, an evaluator is released, and any other task fails the job. Once the leader
    has ended its training, no trainer is restarted for a failure of the connection, and
    the job goes on without those that are left.
    """
    if state.phase is TaskPhase.RELEASED:
        return
    if any(it.phase is TaskPhase.WAITING for it in job.gang(state)):
        if state is job.leader and job.is_led_to_the_end:
            yield from _call_off_restart(job, state)
        else:
            yield Restart(state.task, now)
    elif state.phase is TaskPhase.FAILED:
        yield from _after_failure(job, state, now)


def _call_off_restart(job: JobState, leader: TaskState) -> Iterator[Action]:
    """Do not restart a gang whose leader was done before it could be killed."""
    for each in job.trainers:
        if each.last.status and each.failure.is_of_program:
            yield from _fail(job, each, _would_train_again(job))
            return
    yield from _release_trainers(job, leader, job.trainers)


def _after_failure(job: JobState, state: TaskState, now: float) -> Iterator[Action]:
    # If the leader is done, no task would save what is trained after that.
    is_led = job.leader.phase is TaskPhase.SUCCEEDED
    is_trainer = state.task in job.job.trainers
    if is_led and state.is_server:
        yield Release(state.task)
        yield from _release_trainers(job, state, job.trainers)
        return
    # The user has to see an error of the program in any case.
    if job.is_led_to_the_end and is_trainer and not state.failure.is_of_program:
        yield from _release_trainers(job, state, job.gang(state))
        return
    why = state.budget.refusal(state.failure)
    if why is None and job.is_led_to_the_end and is_trainer and job.job.is_gang:
        why = _would_train_again(job)
    if why is None:
        yield from _restart(job, state, now)
    elif state.task.type == TaskType.EVALUATOR:
        reason = f"{state.task} {state.how_it_ended()}: {why}"
        yield Release(state.task, reason)
        if job.completed_at is None:
            yield Say(f"{reason}; the training goes on without it")
    else:
        yield from _fail(job, state, why)


def _would_train_again(job: JobState) -> str:
    return f"{job.leader.task} is done, and would train again with it"


def _release_trainers(
    job: JobState, state: TaskState, trainers: Sequence[TaskState]
) -> Iterator[Action]:
    """Release the trainers that are not done, because a task has ended."""
    left = [it for it in trainers if it.phase not in NOT_NEEDED and not it.is_released]
    for each in left:
        if each.is_alive and each.phase is not TaskPhase.KILLED:
            yield Kill(each.task)
        yield Release(each.task)
    if left:
        others = ", ".join(str(each.task) for each in left if each is not state)
        yield Say(
            f"{state.task} {state.how_it_ended()} when the last checkpoint was saved: "
            f"no further steps of {others or 'it'} are needed"
        )


def _restart(job: JobState, state: TaskState, now: float) -> Iterator[Action]:
    """Restart a failed task and its gang, whose budget allows it."""
    budget, gang = state.budget, job.gang(state)
    delay = budget.delay_secs
    whom = "it" if len(gang) == 1 else "all trainers"
    yield Say(
        f"{state.task} {state.how_it_ended()}: restarting {whom} "
        f"{f'in {delay:g} s' if delay else 'now'} ({budget.used + 1} of "
        f"{budget.max_restarts}); the count starts again at 0 after "
        f"{budget.refill_secs:g} s of new steps"
    )
    yield Restart(state.task, now + delay, is_charged=True)
    for each in gang:
        if each.is_alive:
            yield from _end_with(job, each, state)
        elif each.phase in (TaskPhase.SUCCEEDED, TaskPhase.FAILED) and each != state:
            yield Restart(each.task, now + delay)


def _end_with(job: JobState, each: TaskState, state: TaskState) -> Iterator[Action]:
    """End a task of a gang of which another one has ended."""
    if state.failure.is_stop or state.has_ended_its_trainings:
        # It has taken the last step too, and may be saving it.
        yield from terminate(each, job.job.grace_secs, is_signalled=False)
    elif each.phase is not TaskPhase.KILLED:
        # It waits for the task that is gone, and would not react to SIGTERM.
        yield Kill(each.task)


def _fail(job: JobState, state: TaskState, why: str) -> Iterator[Action]:
    """Stop the job because a task has failed for good."""
    gang = job.gang(state)
    # All tasks of a gang take the same last step, and one of them saves it.
    has_trained = job.job.is_gang and state.has_ended_its_trainings
    is_after_last_step = state.failure.is_stop or has_trained
    if is_after_last_step:
        for each in gang:
            if each.task in job.job.trainers:
                yield from terminate(each, job.job.grace_secs, is_signalled=False)
    # Waiting for a checkpoint is useful only if the failure neither blocks the leader
    # nor spoils what it would save.
    is_apart = len(gang) == 1 and not state.is_server
    can_save = is_after_last_step or (is_apart and not state.failure.is_nan)
    reason = f"{state.task} {state.how_it_ended()}: {why}"
    lets_save = job.leader.is_alive and can_save
    yield Fail(reason, task=state.task, lets_save=lets_save)


# While the job goes on.


def start_those_due(job: JobState, now: float) -> Iterator[Action]:
    """Start the tasks that wait and are due: a gang together."""
    for state in job.tasks.values():
        gang = job.gang(state)
        if all(it.phase is TaskPhase.WAITING and it.start_at <= now for it in gang):
            yield Start(state.task)


def end_silent_tasks(job: JobState, now: float) -> Iterator[Action]:
    """Name a task that gives no sign of life, and kill it later; it has failed then.

    A task that sends no reports but uses the CPU is alive: a native call may be holding
    the GIL. It is named, and not killed unless it is ending. A call that holds the GIL
    and only waits, for example for a file on a dead network drive, cannot be told from
    a hang.
    """
    for state in job.alive:
        if state.phase is TaskPhase.KILLED:
            continue
        since, limit = _silent_since(state), _silence_limit(job, state)
        secs, unheard = now - since, now - state.last.heard_at
        if secs >= limit:
            cause = f"gave no sign of life for {secs:.0f} s"
            yield Say(f"{state.task} {cause}: killing it")
            yield Kill(state.task, cause)
        elif is_silent(job, state, now):
            yield Say(
                f"{state.task} has given no sign of life for {secs:.0f} s (is it "
                f"stopped, or cut off?); after {limit:g} s it counts as failed",
                key=(state.last.run, since),
            )
        if secs < limit <= unheard:
            yield Say(
                f"{state.task} has not reported for {unheard:.0f} s, but uses the CPU: "
                "still waiting; a native call may be holding the GIL",
                key=(state.last.run, state.last.heard_at, _doublings(unheard, limit)),
            )


def is_silent(job: JobState, state: TaskState, now: float) -> bool:
    """Return whether a task has been silent for so long that it is named."""
    secs = now - _silent_since(state)
    return state.is_alive and secs >= _silence_limit(job, state) * _NAMED_AT


def _silent_since(state: TaskState) -> float:
    # A task that is ending has nothing to compute, so use of the CPU is no sign of
    # progress.
    is_ending = state.report.get("ending")
    return state.last.heard_at if is_ending else state.last.worked_at


def _silence_limit(job: JobState, state: TaskState) -> float:
    """Return how long a task may be silent: longer at its start and at its end.

    While TensorFlow is loaded, and after the program is done, no Python thread runs, so
    the thread that sends the reports does not run either.
    """
    longest = 0.0
    if state.report.get("ending"):
        longest = _END_SECS
    elif not state.report.get("imported"):
        longest = IMPORT_SECS
    return max(job.job.heartbeat_timeout_secs, longest)


def missing_in(job: JobState, newest: Newest | None) -> str | None:
    """Return what the newest checkpoint lacks when all trainers are done, or None.

    Args:
        job: The state of the job.
        newest: The newest checkpoint; None if the disk does not answer.
    """
    expected = job.leader.report.get("trained")
    if expected is None or (newest is not None and newest.unknown is not None):
        return None
    if newest is None:
        has = f"{job.leader.report.get('model_dir', 'its disk')} hangs"
    elif newest.step is None:
        has = "there is no checkpoint"
    elif newest.step < expected:
        has = f"the newest has {newest.step}"
    else:
        return None
    return f"{job.leader.task} has saved step {expected}, but {has}"


def wait_for_last_checkpoint(job: JobState, now: float) -> Iterator[Action]:
    """Fail the job if the last checkpoint does not show when all trainers are done.

    A folder that other machines write to may show it late, and a disk may hang.
    """
    if job.missing is None or job.trained_at is None or job.completed_at is not None:
        return
    left = job.trained_at + _LAST_CHECKPOINT_SECS - now
    if left <= 0:
        yield Fail(job.missing)
    elif now - job.trained_at >= _NAMED_SECS:
        line = f"{job.missing}: waiting {left:.0f} s at most"
        yield Say(line, key=("last checkpoint", job.missing))


def end_with_training(job: JobState, now: float) -> Iterator[Action]:
    """Release each ps when the training is complete, and wait for the evaluator.

    The job fails if the evaluator takes longer than `evaluation_timeout_secs`.
    """
    if job.completed_at is None:
        return
    for state in job.tasks.values():
        if state.is_server and not state.is_released:
            yield from terminate(state, OTHERS_SECS)
            yield Release(state.task)
    left = [
        str(it.task)
        for it in job.tasks.values()
        if not it.is_server and (it.is_alive or it.phase is TaskPhase.WAITING)
    ]
    secs, waited = now - job.completed_at, ", ".join(left)
    limit = job.job.evaluation_timeout_secs
    if waited and limit is not None and secs >= limit:
        reason = (
            f"the training is done, but {waited} did not end within {limit:g} s after "
            "it; --evaluation-timeout is that limit"
        )
        yield Fail(reason, EVALUATION_FAILED)
    elif waited and secs >= _LONG_SECS:
        line = f"the training has been done for {secs:.0f} s: waiting for {waited}"
        yield Say(line, key=("evaluation", _doublings(secs, _LONG_SECS)))


def _doublings(secs: float, first: float) -> int:
    return int(math.log2(secs / first))


# To end tasks in time, and in order.


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
        elif not any(it.is_alive for it in _ending_before(job, state)):
            saves = is_trainer and (state is leader or not job.leads_steps)
            yield from terminate(state, job.job.grace_secs if saves else OTHERS_SECS)


def _ending_before(job: JobState, state: TaskState) -> Sequence[TaskState]:
    """Return the tasks that have to end before a task."""
    leader, *others = job.trainers
    if state.task not in job.job.trainers:
        return job.trainers
    first = [leader] if job.leads_steps else others
    return [] if job.job.is_gang or state in first else first


IN_TRAINING: Sequence[Policy] = (
    wait_for_last_checkpoint,
    end_with_training,
    end_silent_tasks,
    kill_overdue,
    give_up_unkillable,
    start_those_due,
)
IN_STOP: Sequence[Policy] = (kill_overdue, give_up_unkillable, stop_in_order)
