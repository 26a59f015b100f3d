"""What becomes of tasks when Ray answers as the test lets it, or not at all."""

import concurrent.futures
import io
import queue
import re
import time

import pytest

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch import Job
from estimator_runtime.launch.task import Ended, Events, Lost, Reported, Run
from estimator_runtime.launch.terminal.console import Console

_TWO = Job(command=("train.py",), replicas={"chief": 1, "worker": 1})


class _Actor:
    """Answers a call when it is told what."""

    def __init__(self, answers):
        self.answers, self.is_dead = answers, False
        self.calls, self.polls, self.unanswered = [], [], []

    def __getattr__(self, name):
        return _Method(self, name)

    def call(self, name, arguments):
        from ray.exceptions import RayActorError

        answer = concurrent.futures.Future()
        self.calls.append((name, *arguments))
        if name == "poll" and not self.is_dead:
            self.polls.append(answer)
        elif self.is_dead:
            answer.set_exception(RayActorError(error_msg="it is dead"))
        elif isinstance(self.answers.get(name), Exception):
            answer.set_exception(self.answers[name])
        elif name in self.answers:
            answer.set_result(self.answers[name])
        else:
            self.unanswered.append(answer)
        return answer

    def die(self):
        from ray.exceptions import RayActorError

        self.is_dead = True
        for answer in self.polls + self.unanswered:
            answer.set_exception(RayActorError(error_msg="it is dead"))
        self.polls.clear()
        self.unanswered.clear()

    def tell(self, *events):
        """Answer the poll that waits."""
        deadline = time.monotonic() + 30
        while not self.polls:
            assert time.monotonic() < deadline, "nobody asks"
            time.sleep(0.01)
        self.polls.pop().set_result(list(events))


class _Method:
    def __init__(self, actor, name):
        self._actor, self._name = actor, name

    def remote(self, *arguments):
        return self._actor.call(self._name, arguments)


class _Cluster:
    """Stands for a Ray cluster with room for a job.

    Attributes:
        actors: All that were created, in the order of the tasks.
        killed: Those that were killed.
        is_silent: Whether killed actors answer nothing instead of an error.
        lost: The ids of nodes that are gone.
        place: Where the next actors are.
        is_deaf: Whether the next actors answer nothing.
        is_closed: Whether the job has left it.
    """

    def __init__(self):
        self.actors, self.killed, self.lost = [], [], set()
        self.is_silent = self.is_deaf = self.is_closed = False
        self.place = ("id", "10.0.0.1", 5000)

    def create(self, index):
        answers = {"where": self.place, "start": None}
        self.actors.append(_Actor({} if self.is_deaf else answers))
        return self.actors[-1]

    def get(self, answer, timeout):
        from ray.exceptions import GetTimeoutError

        try:
            return answer.result(timeout)
        except concurrent.futures.TimeoutError as error:
            raise GetTimeoutError("too late") from error

    def wait(self, answers, timeout):
        return list(concurrent.futures.wait(answers, timeout).not_done)

    def kill(self, actor):
        self.killed.append(actor)
        if not self.is_silent:
            actor.die()

    def has_lost(self, node):
        return node in self.lost

    def close(self):
        self.is_closed = True


class _Tasks:
    """`RayTasks` of a job in a `_Cluster`, and the events of its runs."""

    def __init__(self, cluster, job, waits):
        from estimator_runtime.launch.backends.ray.slot import RayWaits
        from estimator_runtime.launch.backends.ray.tasks import RayTasks

        self.cluster, self._job = cluster, job
        console = Console(io.StringIO(), io.StringIO())
        waits = RayWaits(**{"close_secs": 0.1, **waits})
        self.tasks = RayTasks(job, cluster, console, waits)
        self._events = Events()
        self.tasks.open(self._events, lambda: False)
        self.runs = [Run(task=task, attempt=0) for task in job.tasks]

    def place(self):
        return self.tasks.place(self._job.addressed)

    def next(self):
        """Return the next end of a run."""
        while not isinstance(event := self.next_event(), Ended):
            pass
        return event

    def next_event(self):
        try:
            return self._events.get(30)
        except queue.Empty:
            pytest.fail("nothing is told")


@pytest.fixture
def cluster():
    return _Cluster()


@pytest.fixture
def tasks_of(cluster):
    """Return a function that makes the `_Tasks` of a job, with the `RayWaits` given."""
    made = []

    def make(job=_TWO, **waits):
        made.append(_Tasks(cluster, job, waits))
        return made[-1]

    yield make
    cluster.is_silent = False
    for each in made:
        each.tasks.close()
    for actor in cluster.actors:
        actor.die()


@pytest.fixture
def start(tasks_of, cluster):
    """Return a function that places all tasks, and starts them."""

    def start(**options):
        tasks = tasks_of(**options)
        tasks.place()
        for actor, run in zip(cluster.actors, tasks.runs, strict=True):
            tasks.tasks.start(run, {})
            actor.tell()  # it has answered, and its lease has begun
        return tasks

    return start


def test_a_job_ends_in_a_time_that_does_not_grow_with_its_silent_tasks(start, cluster):
    tasks = start(gone_secs=5.0).tasks
    cluster.is_silent = True
    began = time.monotonic()
    tasks.close()
    assert 5.0 <= time.monotonic() - began < 10.0  # of both together
    assert cluster.killed == cluster.actors
    assert cluster.is_closed


def test_an_actor_that_is_not_created_in_time_is_an_error(tasks_of, cluster):
    cluster.is_deaf = True
    with pytest.raises(LaunchError, match=r"^Ray has not started an actor for each"):
        tasks_of(actors_secs=0.1).place()


def test_a_start_that_never_reached_its_actor_is_an_end_with_the_reason(start, cluster):
    from ray.exceptions import ActorUnavailableError

    tasks = start()
    chief = cluster.actors[0]
    chief.answers["start"] = ActorUnavailableError("it is cut off", None)
    chief.tell(Ended(run=tasks.runs[0], status=1))
    assert tasks.next().status == 1
    again = Run(task=_TWO.tasks[0], attempt=1)
    tasks.tasks.start(again, {})
    end = tasks.next()
    assert (end.run, end.is_machine_lost) == (again, False)
    assert re.fullmatch(
        r"lost its actor \(.* is unavailable: it is cut off.*\)", end.cause
    )
    assert cluster.killed == [chief]


def test_an_actor_that_answers_nothing_for_longer_than_its_lease_is_lost(
    start, cluster
):
    tasks = start(lease_secs=1.0, answer_secs=0.2, retry_secs=0.1)
    assert {tasks.next().cause for _ in tasks.runs} == {"lost its actor (too late)"}
    assert set(cluster.killed) == set(cluster.actors)


def test_a_job_ends_no_earlier_than_a_task_that_may_live_on_on_a_lost_node(
    start, cluster
):
    tasks = start(lease_secs=3.0)
    began = time.monotonic()
    cluster.lost = {"id"}  # the node that all are on
    for actor in cluster.actors:
        actor.die()
    ends = [tasks.next() for _ in tasks.runs]
    assert {end.cause for end in ends} == {"lost its node (it is dead)"}
    assert all(end.is_machine_lost for end in ends)
    tasks.tasks.close()
    assert 2.0 < time.monotonic() - began < 20.0


def test_a_task_whose_port_is_taken_after_its_actor_died_needs_another_address(
    start, cluster
):
    tasks = start()
    chief = cluster.actors[0]
    chief.answers["start"] = OSError(98, "Address already in use")
    chief.tell(Ended(run=tasks.runs[0], status=1))
    assert not tasks.next().is_machine_lost
    tasks.tasks.start(Run(task=_TWO.tasks[0], attempt=1), {})
    end = tasks.next()
    assert (end.status, end.is_machine_lost) == (-9, True)
    assert "lost its address" in end.cause and "in use" in end.cause


def test_a_task_that_ray_moves_to_another_node_is_not_started_there(start, cluster):
    tasks = start(lease_secs=0.0)
    cluster.place = ("other", "10.0.0.2", 5001)
    cluster.actors[1].die()
    assert not tasks.next().is_machine_lost
    again = Run(task=_TWO.tasks[1], attempt=1)
    tasks.tasks.start(again, {})
    end = tasks.next()
    assert (end.run, end.is_machine_lost) == (again, True)
    assert end.cause == "lost its node (Ray has moved it)"
    assert "start" not in [call[0] for call in cluster.actors[2].calls]


def test_a_model_dir_that_ray_removes_with_its_copy_ends_the_job(start, cluster):
    tasks = start()
    folder = "/tmp/ray/session/runtime_resources/working_dir_files/_ray_pkg_1/model"
    report = Reported(run=tasks.runs[0], report={"model_dir": folder})
    cluster.actors[0].tell(report)
    while not isinstance(event := tasks.next_event(), Lost):
        pass
    assert event.reason == (
        f"model_dir {folder!r} is in the copy of --working-dir that a node has; give "
        "the path of a folder that all nodes share"
    )
