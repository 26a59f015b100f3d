"""Which phases a task goes through, and what is refused."""

import pytest

from estimator_runtime.launch.supervisor.machine import (
    TRANSITIONS,
    Cause,
    TaskPhase,
    TaskState,
)
from estimator_runtime.launch.supervisor.restart_policy import Budget
from estimator_runtime.launch.task import Task

_DO = {
    Cause.START: lambda state: state.start(1.0),
    Cause.SIGN_OF_LIFE: lambda state: state.hear({}, 1.0),
    Cause.TERMINATE: lambda state: state.stop(1.0, 30.0),
    Cause.KILL: lambda state: state.kill(1.0),
    Cause.SUCCESS: lambda state: state.end(0),
    Cause.FAILURE: lambda state: state.end(1),
    Cause.RESTART: lambda state: state.restart(2.0),
    Cause.RELEASE: lambda state: state.release(),
}
_TO = {
    TaskPhase.WAITING: (),
    TaskPhase.STARTING: (Cause.START,),
    TaskPhase.RUNNING: (Cause.START, Cause.SIGN_OF_LIFE),
    TaskPhase.STOPPING: (Cause.START, Cause.TERMINATE),
    TaskPhase.KILLED: (Cause.START, Cause.KILL),
    TaskPhase.SUCCEEDED: (Cause.START, Cause.SUCCESS),
    TaskPhase.FAILED: (Cause.START, Cause.FAILURE),
    TaskPhase.RELEASED: (Cause.RELEASE,),
}
# A report does not always change the phase, and a live task is released at its end.
_SILENT = (Cause.SIGN_OF_LIFE, Cause.RELEASE)


def _task(task_type, phase=TaskPhase.WAITING, **arguments):
    state = TaskState(Task(type=task_type, index=0), Budget(3), **arguments)
    for cause in _TO[phase]:
        _DO[cause](state)
    return state


@pytest.mark.parametrize("phase", TaskPhase)
def test_a_phase_is_left_as_the_table_says_and_in_no_other_way(phase):
    for cause in set(Cause) - set(_SILENT):
        state = _task("chief", phase)
        assert state.phase is phase
        following = TRANSITIONS.get((phase, cause))
        if following is None:
            with pytest.raises(RuntimeError, match=f"chief is {phase.value}: no"):
                _DO[cause](state)
        else:
            _DO[cause](state)
            assert state.phase is following


@pytest.mark.parametrize(
    ("phase", "following"),
    [
        (TaskPhase.WAITING, TaskPhase.RELEASED),
        (TaskPhase.FAILED, TaskPhase.RELEASED),
        (TaskPhase.STOPPING, TaskPhase.STOPPING),
        (TaskPhase.KILLED, TaskPhase.KILLED),
    ],
)
def test_a_task_is_released_when_it_has_ended_however_it_ends(phase, following):
    state = _task("ps", phase)
    state.release()
    assert state.phase is following
    if state.is_alive:
        state.end(1)
    assert (state.phase, state.is_done) == (TaskPhase.RELEASED, True)


@pytest.mark.parametrize(
    ("task", "report", "phase"),
    [
        ("worker", {"unfinished": ["/m"]}, TaskPhase.SUCCEEDED),
        ("chief", {"unfinished": []}, TaskPhase.SUCCEEDED),
        ("chief", {"unfinished": ["/m"]}, TaskPhase.FAILED),
        ("ps", {}, TaskPhase.FAILED),
    ],
)
def test_status_0_is_a_success_unless_something_is_left_to_do(task, report, phase):
    state = _task(task, TaskPhase.RUNNING, leads=task == "chief")
    state.hear(report, 2.0)
    state.end(0)
    assert state.phase is phase


def test_a_time_in_which_the_launcher_was_stopped_counts_against_no_task():
    state = _task("chief", TaskPhase.STOPPING)
    state.wait_longer(60.0)  # as after Ctrl-Z and fg
    assert (state.last.stop_by, state.last.heard_at) == (91.0, 61.0)
