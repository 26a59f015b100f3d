"""What becomes of tasks when Ray answers as the test lets it, or not at all."""

import concurrent.futures
import io
import queue
import re
import threading
import time

import pytest

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch import Job
from estimator_runtime.launch.task import Ended, Events, Run
from estimator_runtime.launch.terminal.console import Console

_TWO = Job(command=("train.py",), replicas={"chief": 1, "worker": 1})
_THREE = Job(command=("train.py",), replicas={"chief": 1, "worker": 1, "evaluator": 1})


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
            self.unanswered.append((name, answer))
        return answer

    def answer(self, name, result):
        """Answer the calls of a method, those too that wait for it."""
        self.answers[name] = result
        for each, answer in self.unanswered:
            if each == name and not answer.done():
                answer.set_result(result)

    def die(self):
        from ray.exceptions import RayActorError

        self.is_dead = True
        unanswered = [answer for _, answer in self.unanswered if not answer.done()]
        for answer in self.polls + unanswered:
            answer.set_exception(RayActorError(error_msg="it is dead"))
        self.polls.clear()

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
    """Stands for Ray's cluster, and for the placement of a job in it.

    Attributes:
        actors: All that were made, in the order of the tasks.
        killed: Those that were killed.
        is_silent: Whether nobody ever hears of that.
        lost: The ids of nodes that are gone.
        place: Where the next actors are.
        is_deaf: Whether the next actors answer nothing.
        problems: What `check_nodes` raises, from the last to the first.
        checked: The ids of the nodes that it has found good.
        is_head_silent: Whether nobody is told which nodes are alive.
        done: What happened to the placement.
        size: How many tasks that is for.
        waits: The `RayWaits`.
    """

    def __init__(self):
        self.actors, self.killed, self.problems, self.done = [], [], [], []
        self.lost, self.checked, self.folder, self.waits = set(), set(), "/", None
        self.is_silent = self.is_deaf = self.is_head_silent = False
        self.place, self.size = ("id", "10.0.0.1", ".", 5000), 0

    # The actors.

    def get(self, answer, timeout=None):
        from ray.exceptions import GetTimeoutError

        try:
            return answer.result(timeout)
        except concurrent.futures.TimeoutError as error:
            raise GetTimeoutError("too late") from error

    def wait(self, answers, timeout):
        done, left = concurrent.futures.wait(answers, timeout)
        return list(done), list(left)

    def kill(self, actor):
        self.killed.append(actor)
        if not self.is_silent:
            actor.die()

    def create(self, options, job):
        answers = {"where": self.place, "start": None}
        self.actors.append(_Actor({} if self.is_deaf else answers))
        return self.actors[-1]

    # The placement.

    def reserve(self, timeout_secs, is_cancelled):
        self.done.append("reserved")

    def options(self, index):
        return {}

    def nodes(self):
        return ["id"] * self.size

    def release(self):
        self.done.append("released")

    # The nodes.

    def is_alive(self, node):
        if self.is_head_silent:
            raise ConnectionError("the head does not answer")
        return node not in self.lost

    def addresses(self):
        return {"id": "10.0.0.1"}

    def check_nodes(self, nodes):
        if self.problems and not self.checked.issuperset(nodes):
            raise self.problems.pop()
        self.checked.update(nodes)

    def disconnect(self):
        self.done.append("disconnected")


class _Tasks:
    """`RayTasks` of a job in a `_Cluster`, and what they tell."""

    def __init__(self, cluster, job, waits):
        from estimator_runtime.launch.backends.ray.cluster import RayWaits
        from estimator_runtime.launch.backends.ray.tasks import RayTasks

        self.cluster, self._job, self._said = cluster, job, io.StringIO()
        cluster.size = len(job.tasks)
        console = Console(self._said, self._said)
        cluster.waits = RayWaits(**{"close_secs": 0.1, **waits})
        self.tasks = RayTasks(job, cluster, 5.0, console, cluster)
        self._events = Events()
        self.tasks.open(self._events, lambda: False)
        self.runs = [Run(task=task, attempt=0) for task in job.tasks]

    @property
    def said(self):
        return self._said.getvalue()

    def place(self):
        deadline = time.monotonic() + 30
        while self.tasks.place(self._job.tasks) is None:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def next(self):
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
            actor.tell()
        return tasks

    return start


def test_a_job_ends_in_a_time_that_does_not_grow_with_its_silent_tasks(start, cluster):
    tasks = start(gone_secs=5.0).tasks
    cluster.is_silent = True
    began = time.monotonic()
    tasks.close()
    assert 5.0 <= time.monotonic() - began < 10.0  # of both together
    assert cluster.killed == cluster.actors
    assert cluster.done[-2:] == ["released", "disconnected"]


def test_a_job_ends_though_its_cluster_never_says_where_its_tasks_are(
    tasks_of, cluster
):
    may_answer = threading.Event()

    def reserve(*_):
        may_answer.wait(60)
        raise LaunchError("too late")

    cluster.reserve = reserve
    tasks = tasks_of(gone_secs=0.1).tasks
    assert tasks.place(_TWO.tasks) is None
    began = time.monotonic()
    tasks.close()
    assert time.monotonic() - began < 30.0
    assert cluster.done == ["released", "disconnected"]
    may_answer.set()


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
    assert (end.run, end.is_displaced) == (again, False)
    assert re.fullmatch(
        r"lost its actor \(.* is unavailable: it is cut off.*\)", end.cause
    )
    assert cluster.killed == [chief]


def test_a_lost_actor_is_told_of_also_while_the_head_of_the_cluster_is_silent(
    start, cluster
):
    tasks = start()
    cluster.is_head_silent = True
    cluster.actors[1].die()
    end = tasks.next()
    assert (end.run, end.is_displaced) == (tasks.runs[1], False)
    assert end.cause.startswith("lost its actor")


def test_a_node_that_goes_while_it_is_asked_is_not_the_end(start, cluster):
    from estimator_runtime.launch.backends.ray.cluster import NodeLostError

    cluster.problems = [NodeLostError("no answer")] * 2
    start(retry_secs=0.1)
    assert cluster.problems == []
    assert cluster.done == ["reserved"] * 3


def test_a_node_that_will_not_do_is_the_end(start, cluster):
    cluster.problems = [LaunchError("other versions")]
    with pytest.raises(LaunchError, match=r"^other versions$"):
        start()


def test_an_actor_that_is_not_made_is_named_with_its_node(tasks_of, cluster):
    cluster.is_deaf = True
    tasks = tasks_of(actors_secs=0.5, silent_secs=0.0)
    chief, worker = "chief on node 10.0.0.1", "worker 0 on node 10.0.0.1"
    with pytest.raises(LaunchError, match=f"^no actor was started for {chief} within"):
        tasks.place()
    assert f"launcher | waiting for the actor of {chief}, {worker}\n" in tasks.said


def _lose_node(tasks):
    """Lose the node that all are on; Ray moves what was there to another one."""
    cluster = tasks.cluster
    cluster.lost = {"id"}
    cluster.nodes = lambda: ["other"] * cluster.size
    cluster.place = ("other", "10.0.0.2", ".", 5001)


def _wait_until(is_so, tasks):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, tasks.said
        time.sleep(0.01)


def _started(actor):
    """Return the arguments of the only start of a run."""
    [(_, *arguments)] = [call for call in actor.calls if call[0] == "start"]
    return arguments


def test_a_task_that_may_live_on_is_waited_for_before_it_is_started_elsewhere(
    start, cluster
):
    tasks = start(lease_secs=35.0)
    cluster.actors[0].tell()
    _lose_node(tasks)
    for actor in cluster.actors:
        actor.die()
        assert tasks.next().is_displaced
    tasks.place()
    again = Run(task=_TWO.tasks[0], attempt=1)
    tasks.tasks.start(again, {})
    run, _, address, leases = _started(cluster.actors[2])
    assert (run, address) == (again, ("other", 5001))
    assert 30.0 < leases["id"] <= 35.0
    assert cluster.checked == {"id", "other"}


def test_a_start_that_waits_for_a_node_that_is_lost_meanwhile_is_an_end(start, cluster):
    """Ray has no room elsewhere, and tells nothing of an actor that it cannot make."""
    tasks = start(answer_secs=0.1)
    cluster.is_deaf = True
    cluster.actors[1].die()  # given up, as it is silent
    assert not tasks.next().is_displaced
    again = Run(task=_TWO.tasks[1], attempt=1)
    tasks.tasks.start(again, {})
    cluster.lost = {"id"}
    ends = [tasks.next() for _ in range(2)]
    assert {end.run for end in ends} == {tasks.runs[0], again}
    assert {end.cause for end in ends} == {"lost its node (too late)"}
    assert all(end.is_displaced for end in ends)


def test_an_actor_that_is_slow_to_start_on_another_node_is_not_given_up(start, cluster):
    tasks = start(answer_secs=0.1)
    cluster.is_deaf, cluster.lost = True, {"id"}
    for actor in cluster.actors:
        actor.die()
    assert all(tasks.next().is_displaced for _ in tasks.runs)
    cluster.nodes = lambda: ["other"] * 2
    assert tasks.tasks.place(_TWO.tasks) is None
    _wait_until(lambda: len(cluster.actors) == 4, tasks)
    time.sleep(0.5)  # for several answers that do not come
    for actor in cluster.actors[2:]:
        actor.answer("where", ("other", "10.0.0.2", ".", 5000))
    tasks.place()
    assert (cluster.killed, len(cluster.actors)) == (cluster.actors[:2], 4)


@pytest.mark.parametrize("has_room_at_once", [False, True])
def test_a_node_that_is_lost_before_an_actor_was_made_there_is_no_place(
    tasks_of, cluster, has_room_at_once
):
    cluster.is_deaf = True
    tasks = tasks_of(actors_secs=0.5, silent_secs=0.0, retry_secs=0.1)
    assert tasks.tasks.place(_TWO.tasks) is None
    _wait_until(lambda: len(cluster.actors) == 2, tasks)
    _lose_node(tasks)
    if not has_room_at_once:
        _wait_until(lambda: "again: node 10.0.0.1 is gone\n" in tasks.said, tasks)
    for actor in cluster.actors:
        actor.answer("where", cluster.place)
    tasks.place()
    assert cluster.done.count("reserved") > 1


def _move_evaluator(tasks):
    """Lose its node, and start it again with an actor that Ray has placed elsewhere."""
    cluster = tasks.cluster
    _lose_node(tasks)
    cluster.actors[2].die()
    end = tasks.next()
    assert (end.run, end.is_displaced) == (tasks.runs[2], False)
    again = Run(task=_THREE.tasks[2], attempt=1)
    tasks.tasks.start(again, {})
    return again


def test_an_evaluator_is_started_elsewhere_and_nothing_else_is(start, cluster):
    tasks = start(job=_THREE)
    run = _move_evaluator(tasks)
    started, _, address, leases = _started(cluster.actors[3])
    assert (started, address) == (run, None)
    assert 30.0 < leases["id"] <= 35.0
    cluster.actors[3].tell()  # its node has been checked
    assert cluster.checked == {"id", "other"}
    assert len(cluster.actors) == 4


def test_an_evaluator_on_a_node_that_will_not_do_has_ended_with_the_reason(
    start, cluster
):
    tasks = start(job=_THREE)
    cluster.problems = [LaunchError("other versions")]
    run = _move_evaluator(tasks)
    end = tasks.next()
    assert (end.run, end.is_displaced) == (run, False)
    assert end.cause.endswith(" (other versions)")
    assert cluster.actors[3] in cluster.killed and not cluster.actors[3].polls
