"""How a task learns that its training has ended."""

import pathlib

import pytest

from estimator_runtime.distributed import finish_note


@pytest.fixture
def model_dir(tmp_path, monkeypatch):
    monkeypatch.delenv("ESTIMATOR_RUNTIME_JOB", raising=False)
    finish_note.begin()
    return str(tmp_path)


def test_a_training_has_ended_when_its_leader_says_so(model_dir):
    end = finish_note.FinishNote(model_dir)
    assert end.step() is None
    finish_note.note(model_dir, 70)
    assert end.step() == 70


def test_a_note_that_was_there_before_is_of_another_training(model_dir):
    finish_note.note(model_dir, 70)
    end = finish_note.FinishNote(model_dir)
    assert end.step() is None
    finish_note.note(model_dir, 70)
    assert end.step() == 70


def test_a_task_of_a_job_that_comes_late_knows_the_note_of_the_same_job(
    model_dir, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", "a")
    finish_note.note(model_dir, 70)
    assert finish_note.FinishNote(model_dir).step() == 70
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", "b")
    assert finish_note.FinishNote(model_dir).step() is None


def test_a_job_that_is_started_anew_as_a_whole_does_not_take_its_old_note_for_the_end(
    model_dir, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", "a")
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB_ATTEMPT", "0")
    finish_note.note(model_dir, 70)
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB_ATTEMPT", "1")
    end = finish_note.FinishNote(model_dir)
    assert end.step() is None
    finish_note.note(model_dir, 90)
    assert (end.step(), finish_note.FinishNote(model_dir).step()) == (90, 90)


def test_the_end_of_a_programs_first_training_is_not_that_of_its_second(
    model_dir, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", "a")
    finish_note.note(model_dir, 70)
    finish_note.begin()
    end = finish_note.FinishNote(model_dir)
    assert end.step() is None
    finish_note.note(model_dir, 90)
    assert end.step() == 90


@pytest.mark.parametrize("job", ["a", None])
def test_a_late_note_of_a_programs_first_training_does_not_end_its_second(
    model_dir, monkeypatch, job
):
    """Its leader closes its session while the evaluator begins the next training."""
    if job:
        monkeypatch.setenv("ESTIMATOR_RUNTIME_JOB", job)
    finish_note.note(model_dir, 70)  # it is seen only when the next one has begun
    (path,) = pathlib.Path(model_dir).iterdir()
    late = path.read_bytes()
    path.unlink()
    finish_note.begin()
    end = finish_note.FinishNote(model_dir)
    path.write_bytes(late)
    assert end.step() is None
    finish_note.note(model_dir, 90)
    assert end.step() == 90
