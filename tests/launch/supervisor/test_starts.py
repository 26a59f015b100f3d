"""Which tasks are started again together, with a back end that the test holds."""

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.launch import Job
from estimator_runtime.launch.supervisor.starts import Starts
from estimator_runtime.launch.supervisor.task_state import TaskState


class _Tasks:
    """Keeps what a back end would start; has places only when it is told so."""

    def __init__(self):
        self.started, self.placed = [], 0
        self.has_room = True

    def place(self, addressed):
        if not self.has_room:
            return None
        self.placed += 1
        return Cluster({"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3"]})

    def start(self, run, environ):
        self.started.append(str(run.task))


def _job(**replicas):
    """Return (the back end, the starts, name to watch) of a job."""
    job = Job(command=("train.py",), replicas={"chief": 1, **replicas})
    watches = {str(task): TaskState(task, job.max_restarts) for task in job.tasks}
    tasks = _Tasks()
    return tasks, Starts(job, tasks, list(watches.values())), watches


def _end(watch, is_displaced=False):
    watch.end(-9, is_displaced=is_displaced)


def test_nothing_is_started_until_there_is_room():
    tasks, starts, _ = _job(worker=1)
    tasks.has_room = False
    starts.due(now=0.0)
    assert (tasks.started, starts.is_waiting, starts.has_begun) == ([], True, False)
    tasks.has_room = True
    starts.due(now=1.0)
    assert (tasks.started, starts.is_waiting) == (["chief", "worker 0"], False)


def test_a_task_that_ended_at_its_address_is_started_there_alone():
    tasks, starts, watches = _job(worker=1, ps=1, evaluator=1)
    starts.due(now=0.0)
    tasks.started.clear()
    _end(watches["worker 0"])
    starts.plan(watches["worker 0"], now=1.0)
    starts.due(now=1.0)
    assert (tasks.started, tasks.placed) == (["worker 0"], 1)


def test_a_task_that_lost_its_address_takes_all_with_it():
    tasks, starts, watches = _job(worker=1, ps=1, evaluator=1)
    starts.due(now=0.0)
    tasks.started.clear()
    lost = watches["worker 0"]
    _end(lost, is_displaced=True)
    everyone = ["ps 0", "chief", "worker 0", "evaluator"]
    assert [str(watch.task) for watch in starts.gang(lost)] == everyone
    starts.plan(lost, now=1.0)
    starts.due(now=1.0)
    assert tasks.started == []  # the others have still to end
    _end(watches["chief"])
    _end(watches["ps 0"])
    _end(watches["evaluator"])  # it would ask at the old addresses who trains
    tasks.has_room = False
    starts.due(now=2.0)
    assert tasks.started == [] and starts.is_waiting
    tasks.has_room = True
    starts.due(now=3.0)
    assert (tasks.started, tasks.placed) == (everyone, 2)
    assert not starts.is_waiting
    budgets = [watch.budget.used for watch in watches.values()]
    assert sum(budgets) == lost.budget.used == 1


def test_an_evaluator_that_fails_before_the_others_have_new_addresses_gets_them_too():
    tasks, starts, watches = _job(ps=1, evaluator=1)
    starts.due(now=0.0)
    tasks.started.clear()
    _end(watches["ps 0"], is_displaced=True)
    starts.plan(watches["ps 0"], now=1.0)
    _end(watches["evaluator"])
    starts.due(now=1.0)
    assert tasks.started == []
    _end(watches["chief"])
    starts.due(now=2.0)
    assert (tasks.started, tasks.placed) == (["ps 0", "chief", "evaluator"], 2)
