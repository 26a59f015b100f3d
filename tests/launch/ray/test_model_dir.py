"""Whether a node shares the folder that its task reports, told by a slot without Ray."""

import os
import threading

import pytest

from estimator_runtime.launch.task import Refused, Reported, Run, Task

_CHIEF, _WORKER = Task(type="chief", index=0), Task(type="worker", index=0)


class _Slot:
    """Answers at once.

    Attributes:
        problem: What it answers, or raises.
        asked: The folders of the files that it was asked about, which were there.
    """

    def __init__(self, node_id="id", problem=None):
        self.node_id, self.problem, self.asked = node_id, problem, []

    def ask(self, method, token, timeout_secs):
        assert method == "problem_with" and os.path.exists(token)
        self.asked.append(os.path.dirname(token))
        if isinstance(self.problem, Exception):
            raise self.problem
        return self.problem


@pytest.fixture
def hear():
    """Return a function that reports folders of slots, and returns the refusals."""
    from estimator_runtime.launch.backends.ray.model_dir import ModelDirCheck

    refused: list[Refused] = []
    check = ModelDirCheck(_CHIEF, refused.append)

    def hear(slot, task, attempt=0, **report):
        check.hear(Reported(run=Run(task=task, attempt=attempt), report=report), slot)
        for thread in threading.enumerate():
            if thread.name == "estimator_runtime check":
                thread.join(30)
        return refused

    return hear


def test_a_folder_that_a_node_sees_is_left_as_it_was(hear, tmp_path):
    slot = _Slot()
    assert hear(slot, _CHIEF, model_dir=str(tmp_path)) == []
    assert slot.asked == [str(tmp_path)]
    assert os.listdir(tmp_path) == []


def test_what_a_node_has_against_a_folder_refuses_it_late_for_a_later_run(
    hear, tmp_path
):
    path = str(tmp_path / "model")
    hear(_Slot("a", "first"), _CHIEF, model_dir=path)
    assert hear(_Slot("b", "then"), _CHIEF, attempt=1, model_dir=path) == [
        Refused(reason="first"),
        Refused(reason="then", is_late=True),
    ]
    assert os.listdir(path) == []


def test_a_machine_of_the_launcher_that_cannot_write_is_named(hear, tmp_path):
    (tmp_path / "file").touch()
    path = str(tmp_path / "file" / "model")
    [refused] = hear(_Slot(), _CHIEF, model_dir=path)
    assert refused.reason == (
        f"the machine of the launcher cannot write to model_dir {path!r}: Not a "
        "directory; use a folder that it shares with all nodes"
    )


def test_a_node_is_asked_once_for_each_folder_and_again_if_its_actor_was_lost(
    hear, tmp_path
):
    from ray.exceptions import RayActorError

    first, second, other = (str(tmp_path / name) for name in ("1", "2", "3"))
    slot = _Slot()
    hear(slot, _WORKER, checkpoint_dir=other)  # its own business
    hear(slot, _CHIEF, checkpoint_dir=first)  # before one has been named
    hear(slot, _CHIEF, model_dir=second)
    hear(slot, _CHIEF, checkpoint_dir=other)
    hear(slot, _WORKER, model_dir="gs://remote")
    hear(slot, _CHIEF, model_dir=second)
    assert slot.asked == [first, second]
    lost = _Slot("lost", RayActorError())
    for _ in range(2):
        hear(lost, _CHIEF, model_dir=first)
    assert lost.asked == [first, first]
