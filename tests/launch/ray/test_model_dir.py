"""Whether nodes see the same folder, as actors tell that are not of Ray."""

import os
import threading

import pytest

from estimator_runtime.launch.task import Refused, Reported, Run, Task

_CHIEF, _WORKER = Task(type="chief", index=0), Task(type="worker", index=0)


class _Cluster:
    def __init__(self):
        from estimator_runtime.launch.backends.ray.cluster import RayWaits

        self.waits = RayWaits()

    def get(self, answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer


class _Actor:
    """Answers at once.

    Args:
        own: A folder that the node has in place of the shared one.
        is_lost: Whether the actor answers nothing.

    Attributes:
        asked: The folders of the files that it was asked about.
    """

    def __init__(self, own=None, is_lost=False):
        self.own, self.is_lost, self.asked = own, is_lost, []
        self.sees = self  # as a method of Ray's

    def remote(self, path):
        from ray.exceptions import RayActorError

        self.asked.append(os.path.dirname(path))
        if self.is_lost:
            return RayActorError()
        return os.path.exists(path if self.own is None else f"{self.own}/x")


@pytest.fixture
def hear():
    """Return a function that reports folders, and returns a fact of each refusal.

    `moved` are the actors that there are too from the second report on.
    """

    def hear(actors, *reports, copies=(), moved=(), fact="reason"):
        from estimator_runtime.launch.backends.ray.model_dir import ModelDir

        refused: list[Refused] = []
        checks = ModelDir(_CHIEF, lambda: actors, _Cluster(), refused.append)
        checks.copies = set(copies)
        for task, report in reports:
            run = Run(task=task, attempt=0)
            checks.hear(Reported(run=run, report=report))
            for thread in threading.enumerate():
                if thread.name == "estimator_runtime check":
                    thread.join(30)
            actors.update(moved)
        return [getattr(each, fact) for each in refused]

    return hear


def test_a_folder_that_all_see_is_shared_and_left_as_it_was(hear, tmp_path):
    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor()}
    assert hear(actors, (_CHIEF, {"model_dir": str(tmp_path)})) == []
    assert [actor.asked for actor in actors.values()] == [[str(tmp_path)]] * 2
    assert os.listdir(tmp_path) == []


def test_a_node_with_a_folder_of_its_own_is_named(hear, tmp_path):
    path = str(tmp_path / "model")
    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor(own=tmp_path)}
    assert hear(actors, (_CHIEF, {"model_dir": path})) == [
        "node 10.0.0.2 does not see what the machine of the launcher writes to model_dir "
        f"{path!r}; use a folder that all of them share"
    ]
    assert os.listdir(path) == []


def test_a_machine_of_the_launcher_that_cannot_write_is_named(hear, tmp_path):
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "model")
    assert hear({"10.0.0.1": _Actor()}, (_CHIEF, {"model_dir": path})) == [
        f"the machine of the launcher cannot write to model_dir {path!r}: Not a "
        "directory; use a folder that it shares with all nodes"
    ]


def test_a_node_is_asked_once_for_each_folder_and_again_if_its_actor_was_lost(
    hear, tmp_path
):
    first, second, other = (str(tmp_path / name) for name in ("1", "2", "3"))
    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor(is_lost=True)}
    reports = [
        (_WORKER, {"checkpoint_dir": other}),  # its own business
        (_CHIEF, {"checkpoint_dir": first}),  # before one has been named
        (_CHIEF, {"model_dir": second}),
        (_CHIEF, {"checkpoint_dir": other}),
        (_WORKER, {"model_dir": "gs://remote"}),
    ]
    assert hear(actors, *reports) == []
    assert actors["10.0.0.1"].asked == [first, second]
    actors = {"10.0.0.1": _Actor()}
    assert hear(actors, *[(_CHIEF, {"model_dir": first})] * 2) == []
    assert actors["10.0.0.1"].asked == [first]
    actors = {"10.0.0.1": _Actor(is_lost=True)}
    assert hear(actors, *[(_CHIEF, {"model_dir": first})] * 2) == []
    assert actors["10.0.0.1"].asked == [first] * 2


def test_a_node_without_the_folder_that_others_have_seen_is_refused_late(
    hear, tmp_path
):
    reports = [(task, {"model_dir": str(tmp_path)}) for task in (_CHIEF, _WORKER)]
    other = {"10.0.0.2": _Actor(own=tmp_path)}
    late = hear({"10.0.0.1": _Actor()}, *reports, moved=other, fact="is_late")
    assert late == [True]
    assert hear(other, *reports, fact="is_late") == [False]


def test_a_folder_in_the_copy_of_the_working_directory_is_refused(hear):
    actor = _Actor()
    reports = [(_CHIEF, {"checkpoint_dir": path}) for path in ("model", "/copy/model")]
    refused = hear({"10.0.0.1": actor}, *reports, copies=["/copy"])
    assert [reason[:30] for reason in refused] == [
        "model_dir 'model' is in the co",
        "model_dir '/copy/model' is in ",
    ]
    assert actor.asked == []
