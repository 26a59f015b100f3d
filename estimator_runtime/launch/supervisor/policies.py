"""The policies of a job: pure functions of its state and the time that return actions.

A policy changes nothing. `supervisor` executes the actions, in their order. There are
three kinds of policies:

* `on_report` and `on_end` answer an event of one task.
* `IN_TRAINING` are asked again and again while the job goes on.
* `IN_STOP` are asked again and again once the job has to stop.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from estimator_runtime.config.role import TaskType
from estimator_runtime.config.waits import IMPORT_SECS
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import EVALUATION_FAILED
from estimator_runtime.launch.supervisor.machine import TaskPhase, TaskState
from estimator_runtime.launch.task import Task

# The phases of a trainer that the job does not need any more.
_NOT_NEEDED = (TaskPhase.SUCCEEDED, TaskPhase.RELEASED)
# Seconds for tasks that do not train. A ps has nothing to save, and an evaluator has
# finished its evaluation by then.
_OTHERS_SECS = 2.0
# A process is gone within this time after SIGKILL, and so is a remote actor on Ray.
_GONE_SECS = 15.0
# A task is named in the log when it has been silent for this fraction of the timeout.
_NAMED_AT = 1 / 3
# Freeing the memory of a large process takes long, above all on a busy machine.
_END_SECS = 120.0
# A shared folder may show a file only some time after another machine has written it:
# an NFS client caches the contents of a folder for 30 to 60 s (acdirmin, acdirmax).
_SEEN_SECS = 70.0
# A disk that hangs, or a file server that is gone, may answer again.
_ANSWER_SECS = 600.0
# Seconds after which the user is told of such a wait.
_NAMED_SECS = 5.0
# Seconds after which the user is told of an evaluator that still runs.
_LONG_SECS = 60.0


@dataclasses.dataclass(frozen=True)
class Start:
    """Start tasks that wait, after placing all of them if they need new addresses."""

    tasks: tuple[Task, ...]


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
    level: str = "info"


Action = Start | Restart | Terminate | Kill | GiveUp | Release | Fail | Say


@dataclasses.dataclass
class JobState:
    """What the policies decide by: the state of each task, and of the job as a whole.

    Attributes:
        job: The job.
        tasks: The state of each task, in the order in which they are started.
        needs_addresses: Whether all tasks are about to get new addresses, which an
            evaluator has to be told too. So it is before the first start.
        model_dir: The model directory, or None if no task has reported it.
        ending: Why the job has to stop, or None while it goes on.
        is_hurried: Whether it has to stop at once.
        trained_at: When all trainers were found to have ended well, or None.
        answers_since: Since when the disk of the checkpoints has answered each time, or
            None.
        missing: What the last checkpoint lacks, or None.
        completed_at: When the last checkpoint was found as well, or None.
        unevaluated: The evaluator that was given up and the reason, or None.
    """

    job: Job
    tasks: Mapping[Task, TaskState]
    needs_addresses: bool = True
    model_dir: str | None = None
    ending: Fail | None = None
    is_hurried: bool = False
    trained_at: float | None = None
    answers_since: float | None = None
    missing: str | None = None
    completed_at: float | None = None
    unevaluated: tuple[Task, str] | None = None

    @property
    def trainers(self) -> Sequence[TaskState]:
        """The tasks that train; the first one is the leader."""
        return [self.tasks[task] for task in self.job.trainers]

    @property
    def leader(self) -> TaskState:
        """The task that saves the checkpoints."""
        return self.tasks[self.job.trainers[0]]

    @property
    def alive(self) -> Sequence[TaskState]:
        """The tasks whose process runs."""
        return [state for state in self.tasks.values() if state.is_alive]

    @property
    def has_trained(self) -> bool:
        """Whether all trainers have ended well, or are not needed any more."""
        return all(state.phase in _NOT_NEEDED for state in self.trainers)

    @property
    def is_led_to_the_end(self) -> bool:
        """Whether the leader has succeeded, and has reported the end of its training.

        If it has succeeded without that report, the program had other work to do.
        """
        leader = self.leader
        return leader.phase is TaskPhase.SUCCEEDED and "trained" in leader.report

    @property
    def leads_steps(self) -> bool:
        """Whether the leader applies the gradients of all trainers."""
        return "synchronous" in self.leader.report

    @property
    def is_over(self) -> bool:
        """Whether the outcome is known, and no task runs."""
        # In most cases the first task answers this, which counts at every event.
        if any(state.is_alive for state in self.tasks.values()):
            return False
        waits = any(it.phase is TaskPhase.WAITING for it in self.tasks.values())
        return self.ending is not None or (self.completed_at is not None and not waits)

    def gang(self, state: TaskState) -> Sequence[TaskState]:
        """Return the tasks that are restarted together with a task, and the task."""
        # A new address of one task changes the TF_CONFIG of all tasks.
        if state.last.is_displaced or self.needs_addresses:
            return [it for it in self.tasks.values() if not it.is_released]
        is_in_gang = self.job.is_gang and state.task in self.job.trainers
        return self.trainers if is_in_gang else [state]

    def restarts_with_gang(self, state: TaskState) -> bool:
        """Return whether a task that has ended is restarted because others are."""
        is_in_gang = self.job.is_gang and state.task in self.job.trainers
        waits = any(it.phase is TaskPhase.WAITING for it in self.trainers)
        return self.needs_addresses or (is_in_gang and waits)


Policy = Callable[[JobState, float], Iterator[Action]]


def on_report(
    job: JobState, state: TaskState, report: Mapping[str, Any]
) -> Iterator[Action]:
    """Report a training without steps, or tasks that read the same input."""
    if "stalled" in report:
        yield from _stall(state.task, report["stalled"])
    if "input" in report:
        yield from _equal_input(job)
    types = {task.type for task in job.tasks}
    if "model_dir" in report and TaskType.EVALUATOR not in types:
        # Only train_and_evaluate reports a model directory, and it takes an EvalSpec.
        yield Say("no task evaluates or exports; add --evaluator for that", "evaluator")


def _stall(task: Task, stall: Mapping[str, Any]) -> Iterator[Action]:
    yield Say(f"{task} has taken no step for {stall['secs']:.0f} s; it is at:")
    for number, places in enumerate(stall["stacks"]):
        if number:
            yield Say("and another of its threads at:")
        yield from (Say(f"  {place}") for place in places)


def _equal_input(job: JobState) -> Iterator[Action]:
    """Warn of trainers that read the same batches, once all have reported."""
    if any("input" not in state.report for state in job.trainers):
        return
    readers = collections.defaultdict(list)
    for state in job.trainers:
        readers[state.report["input"]].append(str(state.task))
    readers.pop(None, None)
    for *names, last in readers.values():
        if names:
            yield Say(
                f"WARNING: {', '.join(names)} and {last} read the same batches in the "
                "same order. Give each its own part: import estimator_runtime; def "
                "input_fn(config): ... dataset = estimator_runtime.shard(dataset, "
                "config). The Estimator calls input_fn with its RunConfig",
                key=("input", last),
                level="warning",
            )


# The end of a run.


def on_end(job: JobState, state: TaskState, now: float) -> Iterator[Action]:
    """Decide what follows the end of a run: a restart, a release, or a failure.

    A task that fails is restarted while its budget lasts, a gang as a whole. A task
    without which the job can be completed is released.
    """
    if state.is_server and state.last.status == 0 and job.model_dir is None:
        yield Say(
            f"WARNING: {state.task} has ended, and no task has named a model "
            "directory: does the program use TF_CONFIG? If not, each task trains alone",
            key="ps",
            level="warning",
        )
    if state.phase is TaskPhase.RELEASED:
        return
    if job.restarts_with_gang(state):
        is_done = state is job.leader and job.is_led_to_the_end
        if is_done and not job.needs_addresses:
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
    left = [it for it in trainers if it.phase not in _NOT_NEEDED and not it.is_released]
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
    if state.last.is_displaced:
        whom = "all, with new addresses,"
    yield Say(
        f"{state.task} {state.how_it_ended()}: restarting {whom} "
        f"{f'in {delay:g} s' if delay else 'now'} ({budget.used + 1} of "
        f"{budget.max_restarts}); the count starts again at 0 after "
        f"{budget.refill_secs:g} s of new steps"
    )
    yield Restart(state.task, now + delay, is_charged=True)
    for each in gang:
        if each.is_alive and not state.last.is_displaced:
            yield from _end_with(job, each, state)
        elif each.phase in (TaskPhase.SUCCEEDED, TaskPhase.FAILED) and each != state:
            yield Restart(each.task, now + delay)


def _end_with(job: JobState, each: TaskState, state: TaskState) -> Iterator[Action]:
    """End a task of a gang of which another one has ended."""
    if state.failure.is_stop or state.has_ended_its_trainings:
        # It has taken the last step too, and may be saving it.
        yield from _terminate(each, job.job.grace_secs, is_signalled=False)
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
                yield from _terminate(each, job.job.grace_secs, is_signalled=False)
    # Waiting for a checkpoint is useful only if the failure neither blocks the leader
    # nor spoils what it would save.
    is_apart = len(gang) == 1 and not state.is_server
    can_save = is_after_last_step or (is_apart and not state.failure.is_nan)
    reason = f"{state.task} {state.how_it_ended()}: {why}"
    lets_save = job.leader.is_alive and can_save
    yield Fail(reason, task=state.task, lets_save=lets_save)


def _terminate(
    state: TaskState, grace_secs: float, is_signalled: bool = True
) -> Iterator[Action]:
    if state.phase in (TaskPhase.STARTING, TaskPhase.RUNNING):
        yield Terminate(state.task, grace_secs, is_signalled)


# While the job goes on.


def start_those_due(job: JobState, now: float) -> Iterator[Action]:
    """Start the tasks that wait and are due: a gang together, and none without a place.

    If all tasks need new addresses, they start together when the last one has ended.
    """
    waiting = [it for it in job.tasks.values() if it.phase is TaskPhase.WAITING]
    if job.needs_addresses:
        if not job.alive and all(it.start_at <= now for it in waiting):
            yield Start(tuple(it.task for it in waiting))
        return
    gangs = {tuple(it.task for it in job.gang(state)): None for state in waiting}
    for gang in gangs:
        states = [job.tasks[task] for task in gang]
        if all(it in waiting and it.start_at <= now for it in states):
            yield Start(gang)


def stop_for_relocation(job: JobState, now: float) -> Iterator[Action]:
    """End all tasks when one has lost its address, because all get new addresses.

    With every ps still running and trainers that train on their own, the leader saves
    the progress of all after the others have ended, and every ps stays until then.
    """
    if not job.needs_addresses:
        return
    leader, *others = job.trainers
    servers = [it for it in job.tasks.values() if it.is_server and not it.is_released]
    savers: Sequence[TaskState] = []
    if not job.job.is_gang and all(it.is_alive for it in [leader, *servers]):
        savers = [leader, *servers]
        # A leader that needs the others to finish a step can still save the last one.
        if job.leads_steps or not any(it.is_alive for it in others):
            yield from _terminate(leader, job.job.grace_secs)
    for each in job.alive:
        if each not in savers and each.phase is not TaskPhase.KILLED:
            yield Kill(each.task)


def end_silent_tasks(job: JobState, now: float) -> Iterator[Action]:
    """Name a task that gives no sign of life, and kill it later; it has failed then.

    A task that sends no reports but uses the CPU is alive: a native call may be holding
    the GIL. It is named, and never killed. A call that holds the GIL and only waits,
    for example for a file on a dead network drive, cannot be told from a hang.
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


def missing_in(job: JobState, step: int | None, is_hung: bool) -> str | None:
    """Return what the newest checkpoint lacks when all trainers are done, or None.

    Args:
        job: The state of the job.
        step: The step of the newest checkpoint; None if there is none.
        is_hung: Whether its disk does not answer.
    """
    expected = job.leader.report.get("trained")
    if expected is None or (step is not None and step >= expected):
        return None
    if is_hung:
        has = f"{job.model_dir or 'its disk'} hangs"
    else:
        has = "there is no checkpoint" if step is None else f"the newest has {step}"
    return f"{job.leader.task} has saved step {expected}, but {has}"


def wait_for_last_checkpoint(job: JobState, now: float) -> Iterator[Action]:
    """Fail the job if the last checkpoint does not show when all trainers are done.

    A folder that other machines write to may show it late, and a disk may hang.
    """
    if job.missing is None or job.trained_at is None or job.completed_at is not None:
        return
    is_hung = job.answers_since is None
    since = job.trained_at if job.answers_since is None else job.answers_since
    left = since + (_ANSWER_SECS if is_hung else _SEEN_SECS) - now
    if left <= 0:
        yield Fail(job.missing)
    elif now - job.trained_at >= _NAMED_SECS:
        until = "its disk answers" if is_hung else "its folder shows it"
        line = f"{job.missing}: waiting {left:.0f} s at most until {until}"
        yield Say(line, key=("last checkpoint", is_hung))


def end_with_training(job: JobState, now: float) -> Iterator[Action]:
    """Release each ps when the training is complete, and wait for the evaluator."""
    if job.completed_at is None:
        return
    for state in job.tasks.values():
        if state.is_server and not state.is_released:
            yield from _terminate(state, _OTHERS_SECS)
            yield Release(state.task)
    left = [
        str(it.task)
        for it in job.tasks.values()
        if it.is_alive or it.phase is TaskPhase.WAITING
    ]
    secs, waited = now - job.completed_at, ", ".join(left)
    limit = job.job.evaluation_timeout_secs
    if limit is not None and secs >= limit:
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


# Always, and when the job has to stop.


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
        earlier, secs = list(job.trainers), _OTHERS_SECS
    elif job.job.is_gang:
        earlier, secs = [], job.job.grace_secs
    elif state is leader:
        earlier, secs = ([] if job.leads_steps else others), job.job.grace_secs
    elif job.leads_steps:
        earlier, secs = [leader], _OTHERS_SECS
    else:
        earlier, secs = [], job.job.grace_secs
    if not any(it.is_alive for it in earlier):
        yield from _terminate(state, secs)


IN_TRAINING: Sequence[Policy] = (
    wait_for_last_checkpoint,
    end_with_training,
    end_silent_tasks,
    stop_for_relocation,
    kill_overdue,
    give_up_unkillable,
    start_those_due,
)
IN_STOP: Sequence[Policy] = (kill_overdue, give_up_unkillable, stop_in_order)
