"""What becomes of tasks when Ray answers as the test lets it, or not at all."""

import concurrent.futures
import io
import os
import queue
import re
import threading
import time

import pytest

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch import Job
from estimator_runtime.launch.task import Ended, Events, Leaving, Refused, Reported, Run
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
        going: The ids of nodes that have given notice.
        place: Where the next actors are.
        is_deaf: Whether the next actors answer nothing.
        is_slow: Whether the next actors do not answer whether a run has started.
        problems: What `check_nodes` raises, from the last to the first.
        checked: The ids of the nodes that it has found good, for each call.
        is_head_silent: Whether nobody is told which nodes are alive.
        done: What happened to the placement.
        size: How many tasks that is for.
    """

    def __init__(self):
        self.actors, self.killed, self.problems, self.done = [], [], [], []
        self.lost, self.going, self.looks = set(), set(), 0
        self.is_silent, self.size, self.checked = False, 0, []
        self.place, self.is_deaf, self.is_slow = ("id", "10.0.0.1", "."), False, False
        self.is_head_silent = False

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

    def create(self, options, job, folder):
        answers = {"where": self.place, "take_port": 5000, "start": None}
        if self.is_slow:
            del answers["start"]
        self.actors.append(_Actor({} if self.is_deaf else answers))
        return self.actors[-1]

    # The placement.

    def reserve(self, timeout_secs, is_cancelled):
        self.done.append("reserved")
        looks, deadline = self.looks, time.monotonic() + 30
        while self.going and self.looks < looks + 2:  # as long as it takes to look
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def options(self, index=None):
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

    def leaving(self):
        self.looks += 1
        return self.going

    def addresses(self):
        return {"id": "10.0.0.1"}

    def check_nodes(self, nodes, folder):
        if self.problems:
            raise self.problems.pop()
        self.checked.append(nodes)

    def disconnect(self):
        self.done.append("disconnected")


class _Tasks:
    """`RayTasks` of a job in a `_Cluster`, and what they tell."""

    def __init__(self, cluster, checked, job, timeout_secs, waits):
        from estimator_runtime.launch.ray.cluster import RayWaits
        from estimator_runtime.launch.ray.tasks import RayTasks

        self.cluster, self._job, self._said = cluster, job, io.StringIO()
        cluster.size = len(job.tasks)
        console = Console(self._said, self._said)
        waits = RayWaits(**{"close_secs": 0.1, **waits})
        self.tasks = RayTasks(
            job, cluster, checked, "/folder", timeout_secs, console, cluster, waits
        )
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
    """Return a function that makes the `_Tasks`, of the ids of nodes that are checked.

    Its keywords are the job, how long to wait for room, and the `RayWaits` that count.
    """
    made = []

    def make(checked=("id",), job=_TWO, timeout_secs=5.0, **waits):
        made.append(_Tasks(cluster, checked, job, timeout_secs, waits))
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

    def start(*checked, **options):
        tasks = tasks_of(*checked, **options)
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


def test_a_start_that_never_reached_its_actor_is_an_end_with_the_reason(start, cluster):
    from ray.exceptions import ActorUnavailableError

    tasks = start()
    chief = cluster.actors[0]
    chief.answers["start"] = ActorUnavailableError("it is cut off", None)
    chief.tell(Ended(run=tasks.runs[0], status=1))
    assert tasks.next().status == 1
    again = Run(task=_TWO.tasks[0], attempt=1)
    tasks.tasks.start(again, {})
    chief.tell()
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


def test_a_notice_is_heard_also_where_the_head_did_not_answer_before(start, cluster):
    cluster.is_slow = True
    tasks = start(look_every_secs=0.02)
    cluster.is_head_silent = True
    looks = cluster.looks
    _wait_until(lambda: cluster.looks > looks + 2, tasks)
    cluster.is_head_silent = False
    cluster.going = {"id"}
    assert tasks.next() == Leaving()


def test_on_a_node_that_is_about_to_go_nobody_is_started_again(start, cluster):
    tasks = start(look_every_secs=0.1)
    cluster.going = {"id"}
    assert tasks.next() == Leaving()
    # The chief did not end in its time; and the worker was about to be started again.
    cluster.actors[0].tell(Ended(run=tasks.runs[0], status=-9))
    assert tasks.next() == Ended(run=tasks.runs[0], status=-9, is_displaced=True)
    again = Run(task=_TWO.tasks[1], attempt=1)
    tasks.tasks.start(again, {})
    end = tasks.next()
    assert (end.run, end.is_displaced) == (again, True)
    # All is given back, so that the node can end; then they sit where none goes.
    cluster.done.clear()
    for actor in cluster.actors:
        actor.answers["close"] = None
    before = cluster.actors[:]
    cluster.nodes = lambda: ["other", "other"]
    cluster.place = ("other", "10.0.0.2", ".")
    tasks.place()
    assert cluster.done == ["released", "reserved"]
    assert cluster.killed == before and len(cluster.actors) == 4
    assert "waiting" not in tasks.said
    assert tasks.said.count("is about to leave") == 2  # once for each that was there


def test_a_task_that_may_live_on_is_waited_for_before_it_is_started_elsewhere(
    start, cluster
):
    tasks = start(lease_secs=1.0, lease_margin_secs=1.5)
    cluster.actors[0].tell()
    began = time.monotonic()
    cluster.lost = {"id"}
    for actor in cluster.actors:
        actor.die()
        assert tasks.next().is_displaced
    cluster.nodes = lambda: ["other", "other"]
    cluster.place = ("other", "10.0.0.2", ".")
    tasks.place()
    assert time.monotonic() - began > 2.0
    assert re.search(
        r"waiting \d s for what may still run on node 10.0.0.1 to end", tasks.said
    )


def _look_twice(cluster):
    looks, deadline = cluster.looks, time.monotonic() + 30
    while cluster.looks < looks + 2:
        assert time.monotonic() < deadline, "nobody looks for notices"
        time.sleep(0.01)


def test_a_start_that_waits_for_a_node_that_is_lost_meanwhile_is_an_end(start, cluster):
    """Ray has no room elsewhere, and tells nothing of an actor that it cannot make."""
    tasks = start(job=_THREE, look_every_secs=0.1)
    for actor in cluster.actors:
        actor.tell()  # it is known that they have started
    cluster.is_deaf = True
    again = [Run(task=task, attempt=1) for task in _THREE.tasks]
    for place in (1, 2):
        cluster.actors[place].die()  # given up, as it is silent
        assert not tasks.next().is_displaced
        tasks.tasks.start(again[place], {})
    _look_twice(cluster)
    assert cluster.killed == cluster.actors[1:3]  # they wait for as long as it is there
    cluster.lost = {"id"}
    end = tasks.next()
    assert (end.run, end.is_displaced) == (again[1], True)
    assert end.cause == "lost its node (it was to start there)"
    _look_twice(cluster)
    assert cluster.killed == cluster.actors[1:4]  # an evaluator takes any node


def test_an_evaluator_that_goes_with_the_place_of_its_gang_is_told_of(start, cluster):
    tasks = start(job=_THREE, look_every_secs=0.1)
    for actor in cluster.actors:
        actor.answers["close"] = None
    evaluator = cluster.actors[2]
    for actor, run in zip(cluster.actors[:2], tasks.runs, strict=False):
        actor.tell(Ended(run=run, status=-9))
        assert tasks.next().run == run
    cluster.going = {"theirs"}  # only the one of the evaluator, so nobody had to stop
    cluster.nodes = lambda: ["id", "id", "theirs" if cluster.going else "id"]
    release = cluster.release

    def release_all():
        release()
        cluster.going = set()

    cluster.release = release_all
    tasks.place()
    cause = "had to leave its node"
    assert tasks.next() == Ended(
        run=tasks.runs[2], status=-9, cause=cause, is_displaced=True
    )
    names = [name for name, *_ in evaluator.calls]
    assert "close" in names and evaluator in cluster.killed
    assert "evaluator has to leave node 10.0.0.1: all are placed anew\n" in tasks.said
    assert "chief has to leave" not in tasks.said


def test_a_notice_for_the_node_of_a_task_that_is_done_stops_nothing(start, cluster):
    tasks = start(job=_THREE, look_every_secs=0.1)
    for actor, run in zip(cluster.actors[:2], tasks.runs, strict=False):
        actor.tell(Ended(run=run, status=0))
        assert tasks.next().status == 0
    cluster.going = {"id"}
    assert tasks.next() == Leaving()
    assert "launcher | node 10.0.0.1 of chief is about to leave\n" in tasks.said
    assert "stopping" not in tasks.said


def test_a_node_that_goes_while_it_is_asked_is_not_the_end(start, cluster):
    from estimator_runtime.launch.ray.nodes import NodeSilentError

    cluster.problems = [NodeSilentError("no answer")] * 2
    start(())
    assert cluster.problems == []
    assert cluster.done == ["reserved"] * 3


def test_a_node_that_will_not_do_is_the_end(start, cluster):
    cluster.problems = [LaunchError("other versions")]
    with pytest.raises(LaunchError, match=r"^other versions$"):
        start(())


def test_an_actor_that_is_not_made_is_named_with_its_node(tasks_of, cluster):
    cluster.is_deaf = True
    tasks = tasks_of(actors_secs=0.5, silent_secs=0.0, retry_secs=0.2)
    who = "chief on node 10.0.0.1, worker 0 on node 10.0.0.1"
    with pytest.raises(LaunchError, match=re.escape(f"was started for {who} within")):
        tasks.place()
    assert f"launcher | waiting for the actor of {who}\n" in tasks.said


def _wait_until(is_so, tasks):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, tasks.said
        time.sleep(0.01)


@pytest.mark.parametrize("is_moved_at_once", [False, True])
def test_a_node_that_is_lost_before_an_actor_was_made_there_is_no_place(
    start, cluster, is_moved_at_once
):
    tasks = start(lease_secs=0.2, lease_margin_secs=0.2, retry_secs=0.1)
    # Both are to have new actors, on a node that answers nothing.
    for actor in cluster.actors[:]:
        actor.die()
        assert not tasks.next().is_displaced
    died_at = time.monotonic()
    cluster.is_deaf = True
    assert tasks.tasks.place(_TWO.tasks) is None
    _wait_until(lambda: len(cluster.actors) == 4, tasks)
    _wait_until(lambda: time.monotonic() > died_at + 0.5, tasks)
    # Ray finds it dead; it moves what was there when there is room, or at once.
    has_room = threading.Event()
    cluster.nodes = lambda: ["other", "other"] if has_room.is_set() else ["id", "id"]
    if not is_moved_at_once:
        cluster.lost = {"id"}
        _wait_until(lambda: cluster.done.count("reserved") > 2, tasks)
    has_room.set()
    for actor in cluster.actors[2:]:
        actor.answer("take_port", 5001)
        actor.answer("where", ("other", "10.0.0.2", "."))
        actor.tell()
    cluster.lost = {"id"}
    tasks.place()
    assert cluster.done.count("reserved") > 2
    assert cluster.checked == [{"other"}]
    assert len(cluster.actors) == 4
    # What they have said since tells nothing of what may run on the lost node.
    assert "waiting" not in tasks.said


@pytest.mark.parametrize(
    "report",
    [{"model_dir": "/model"}, {"checkpoint_dir": "/model"}],
    ids=["Estimator", "session"],
)
def test_whether_the_model_dir_is_shared_is_asked_until_all_have_answered(
    start, cluster, report
):
    tasks = start(ask_again_secs=0.1, answer_secs=0.2)
    chief = cluster.actors[0]
    reported = Reported(run=tasks.runs[0], report=report)
    chief.tell(reported)
    assert tasks.next() == reported
    deadline = time.monotonic() + 30
    while len(_asked(chief)) < 2:
        assert time.monotonic() < deadline, tasks.said
        time.sleep(0.01)
    chief.answers["write_token"] = "Read-only file system"
    assert tasks.next() == Refused(
        reason="node 10.0.0.1 cannot write to model_dir '/model': Read-only file system"
    )
    assert tasks.said.count("model_dir '/model' is not known yet (too late)") == 1


def _asked(actor):
    """Return the folders in which an actor had to write a file."""
    return [
        os.path.dirname(*arguments)
        for name, *arguments in actor.calls
        if name == "write_token"
    ]


def test_each_folder_that_is_trained_in_is_asked_about(start, cluster):
    tasks, chief = start(), cluster.actors[0]  # the only node is asked through it
    reports = [
        (0, {"checkpoint_dir": "/first"}),  # before one has been named
        (0, {"model_dir": "/model"}),
        (1, {"model_dir": "/model"}),
        (0, {"checkpoint_dir": "/other"}),
        (0, {"model_dir": "/next"}),
    ]
    for place, report in reports:
        reported = Reported(run=tasks.runs[place], report=report)
        cluster.actors[place].tell(reported)
        assert tasks.next() == reported
    _wait_until(lambda: len(_asked(chief)) == 3, tasks)
    assert sorted(_asked(chief)) == ["/first", "/model", "/next"]
    assert _asked(cluster.actors[1]) == []
    chief.answer("write_token", "Read-only file system")
    assert {tasks.next() for _ in range(3)} == {
        Refused(
            reason=f"node 10.0.0.1 cannot write to model_dir {path!r}: "
            "Read-only file system"
        )
        for path in ("/first", "/model", "/next")
    }


def test_where_a_worker_saves_is_its_own_business(start, cluster):
    tasks = start()
    reported = Reported(run=tasks.runs[1], report={"checkpoint_dir": "/scratch"})
    cluster.actors[1].tell(reported)
    assert tasks.next() == reported
    assert not any("check" in thread.name for thread in threading.enumerate())


@pytest.fixture
def start_beside_evaluator(start, cluster):
    """Return a function that starts a job whose evaluator is on a node of its own."""
    create = cluster.create

    def create_there(*arguments):
        if len(cluster.actors) == 2:
            cluster.place = ("old", "10.0.0.3", ".")
        return create(*arguments)

    def start_there(**options):
        cluster.nodes = lambda: ["id", "id", "old"]
        cluster.create = create_there
        waits = {"lease_secs": 0.5, "lease_margin_secs": 0.2, **options}
        return start(("id", "old"), job=_THREE, **waits)

    return start_there


def _move_evaluator(tasks):
    """Lose its node, and start it anew on a new one; return the run."""
    cluster, evaluator = tasks.cluster, tasks.cluster.actors[2]
    cluster.place = ("new", "10.0.0.9", ".")
    cluster.lost = {"old"}
    evaluator.tell()  # it lives, as far as is known, until its lease is over
    evaluator.die()
    assert tasks.next().run == tasks.runs[2]
    run = Run(task=_THREE.tasks[2], attempt=1)
    tasks.tasks.start(run, {})
    return run


def _calls(actor):
    return [name for name, *_ in actor.calls]


def test_an_evaluator_is_started_elsewhere_when_the_last_has_ended_and_the_node_will_do(
    start_beside_evaluator, cluster
):
    tasks = start_beside_evaluator(lease_margin_secs=2.5)
    began = time.monotonic()
    _move_evaluator(tasks)
    _wait_until(lambda: "start" in _calls(cluster.actors[3]), tasks)
    assert time.monotonic() - began > 3.0
    assert cluster.checked == [{"new"}]
    assert re.search(
        r"waiting \d s for what may still run on node 10.0.0.3 to end", tasks.said
    )


def test_whether_the_model_dir_is_shared_is_asked_again_where_an_evaluator_goes(
    start_beside_evaluator, cluster
):
    def asked():
        return [_asked(actor) for actor in cluster.actors]

    tasks = start_beside_evaluator()
    reported = Reported(run=tasks.runs[0], report={"model_dir": "/model"})
    cluster.actors[0].tell(reported)
    assert tasks.next() == reported
    once, twice = ["/model"], ["/model"] * 2
    _wait_until(lambda: asked() == [once, [], once], tasks)
    run = _move_evaluator(tasks)
    _wait_until(lambda: "start" in _calls(cluster.actors[3]), tasks)
    reported = Reported(run=run, report={"model_dir": "/model"})
    cluster.actors[3].tell(reported)
    assert tasks.next() == reported
    _wait_until(lambda: asked() == [twice, [], once, once], tasks)


def test_an_evaluator_on_a_node_that_will_not_do_is_not_started(
    start_beside_evaluator, cluster
):
    from estimator_runtime.launch.ray.nodes import NodeSilentError

    tasks = start_beside_evaluator()
    cluster.problems = [LaunchError("other versions"), NodeSilentError("no answer")]
    _move_evaluator(tasks)
    assert tasks.next() == Refused(reason="other versions")
    assert "start" not in _calls(cluster.actors[3])


def test_a_node_that_stays_silent_is_not_asked_for_ever(
    start_beside_evaluator, cluster
):
    from estimator_runtime.launch.ray.nodes import NodeSilentError

    tasks = start_beside_evaluator(timeout_secs=0.0)
    cluster.problems = [NodeSilentError("node 10.0.0.9 does not answer")] * 1000
    _move_evaluator(tasks)
    refused = Refused(reason="node 10.0.0.9 does not answer")
    assert tasks.next() == refused


def test_an_evaluator_that_waits_for_its_start_ends_at_a_signal(
    start_beside_evaluator, cluster
):
    tasks, is_answered = start_beside_evaluator(), threading.Event()
    cluster.check_nodes = lambda *_: is_answered.wait(30)
    run = _move_evaluator(tasks)
    tasks.tasks.signal(run, 15)
    assert tasks.next() == Ended(run=run, status=-15)
    assert cluster.killed[-1] is cluster.actors[3]
    is_answered.set()
    again = Run(task=run.task, attempt=2)
    tasks.tasks.start(again, {})
    _wait_until(lambda: "start" in _calls(cluster.actors[4]), tasks)
    assert "start" not in _calls(cluster.actors[3])


def test_an_evaluator_whose_new_node_cannot_be_looked_at_has_ended(
    start_beside_evaluator, cluster
):
    def is_alive(node):
        if node == "new":
            raise ConnectionError("the head does not answer")
        return node != "old"

    tasks = start_beside_evaluator()
    cluster.is_alive = is_alive
    run = _move_evaluator(tasks)
    assert tasks.next().run == run
    assert "start" not in _calls(cluster.actors[3])
