"""Whether nodes see the same folder, as actors tell that are not of Ray."""

import os

import pytest


class _Cluster:
    def get(self, answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer


class _Actor:
    """Writes and removes files at once.

    Args:
        own: A folder that the node has in place of the shared one.
        is_lost: Whether the actor answers nothing after it has written its file.
    """

    def __init__(self, own=None, is_lost=False):
        self.write_token, self.remove_token = _Method(self.write), _Method(self.remove)
        self._own, self._is_lost = own, is_lost

    def write(self, path):
        from ray.exceptions import RayActorError

        open(self._here(path), "x").close()
        return RayActorError() if self._is_lost else None

    def remove(self, path):
        if not self._is_lost and os.path.exists(self._here(path)):
            os.remove(self._here(path))

    def _here(self, path):
        return path if self._own is None else self._own / os.path.basename(path)


class _Method:
    def __init__(self, function):
        self.remote = function


def _why_not_shared(path, actors):
    from estimator_runtime.launch.ray.cluster import RayWaits
    from estimator_runtime.launch.ray.model_dir import why_not_shared

    return why_not_shared(str(path), actors, _Cluster(), RayWaits(seen_secs=0.0))


def test_a_folder_that_all_see_is_shared_and_left_as_it_was(tmp_path):
    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor()}
    assert _why_not_shared(tmp_path, actors) is None
    assert os.listdir(tmp_path) == []


def test_a_node_with_a_folder_of_its_own_is_named_and_all_is_left_as_it_was(tmp_path):
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor(own=own)}
    assert _why_not_shared(shared, actors) == (
        "the machine of the launcher does not see what node 10.0.0.2 writes to "
        f"model_dir {str(shared)!r}; use a folder that all of them share"
    )
    assert (os.listdir(shared), os.listdir(own)) == ([], [])


def test_an_actor_that_is_lost_while_it_is_asked_leaves_nothing_in_the_folder(tmp_path):
    from ray.exceptions import RayActorError

    actors = {"10.0.0.1": _Actor(), "10.0.0.2": _Actor(is_lost=True)}
    with pytest.raises(RayActorError):
        _why_not_shared(tmp_path, actors)
    assert os.listdir(tmp_path) == []
