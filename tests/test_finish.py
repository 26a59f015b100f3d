"""How a task learns that its training has ended."""

import pytest

from estimator_runtime import finish


@pytest.fixture
def model_dir(tmp_path, monkeypatch):
    monkeypatch.setattr(finish, "_trainings", 0)
    monkeypatch.delenv("ESTIMATOR_RUNTIME_JOB", raising=False)
    finish.begin()
    return str(tmp_path)


def test_a_training_has_ended_when_its_leader_says_so(model_dir):
    end = finish.Finish(model_dir)
    assert end.step() is None
    finish.note(model_dir, 70)
    assert end.step() == 70


def test_a_note_that_was_there_before_is_of_another_training(model_dir):
    finish.note(model_dir, 70)
    end = finish.Finish(model_dir)
    assert end.step() is None
    finish.note(model_dir, 70)
    assert end.step() == 70


def test_a_task_of_a_job_that_comes_late_knows_the_note_of_the_same_job(
    model_dir, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", "a")
    finish.note(model_dir, 70)
    assert finish.Finish(model_dir).step() == 70
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", "b")
    assert finish.Finish(model_dir).step() is None


def test_the_end_of_a_programs_first_training_is_not_that_of_its_second(
    model_dir, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", "a")
    finish.note(model_dir, 70)
    finish.begin()
    end = finish.Finish(model_dir)
    assert end.step() is None
    finish.note(model_dir, 90)
    assert end.step() == 90
