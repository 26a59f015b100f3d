"""Whether nodes see the same folder, as actors tell that are not of Ray."""

import os

import pytest


class _Ray:
    @staticmethod
    def get(answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer


class _Actor:
    """Writes, sees and removes files at once, until it is lost, before `seen_tokens`."""

    def __init__(self, is_to_be_lost=False):
        self._is_to_be_lost, self._is_lost = is_to_be_lost, False

    def __getattr__(self, name):
        return _Method(self, name)

    def do(self, name, argument):
        from ray.exceptions import RayActorError

        self._is_lost = self._is_lost or (self._is_to_be_lost and name == "seen_tokens")
        if self._is_lost:
            return RayActorError()
        if name == "write_token":
            open(argument, "x").close()
        elif name == "remove_token" and os.path.exists(argument):
            os.remove(argument)
        elif name == "seen_tokens":
            return [path for path in argument if os.path.isfile(path)]
        return None


class _Method:
    def __init__(self, actor, name):
        self._actor, self._name = actor, name

    def remote(self, argument):
        return self._actor.do(self._name, argument)


@pytest.fixture(autouse=True)
def ray(monkeypatch):
    from estimator_runtime.launch.ray import model_dir

    monkeypatch.setattr(model_dir, "ray", _Ray)


def test_a_folder_that_all_see_is_shared_and_left_as_it_was(tmp_path):
    from estimator_runtime.launch.ray.model_dir import why_not_shared

    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor()}
    assert why_not_shared(str(tmp_path), actors) is None
    assert os.listdir(tmp_path) == []


def test_an_actor_that_is_lost_while_it_is_asked_leaves_nothing_in_the_folder(tmp_path):
    from ray.exceptions import RayActorError

    from estimator_runtime.launch.ray.model_dir import why_not_shared

    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor(is_to_be_lost=True)}
    with pytest.raises(RayActorError):
        why_not_shared(str(tmp_path), actors)
    assert os.listdir(tmp_path) == []
