"""Which checkpoint is safe, told from the files alone."""

import pathlib
import shutil

import pytest

from estimator_runtime.launch import Job
from estimator_runtime.launch.supervisor.record import Record
from estimator_runtime.launch.task import Run, Task

_CHIEF, _WORKER = Task(type="chief", index=0), Task(type="worker", index=0)
_CHIEFS, _WORKERS = (Run(task=task, attempt=0) for task in (_CHIEF, _WORKER))
_JOB = Job(command=("x",), replicas={"chief": 1, "worker": 1})


def _record(folder=None, **arguments):
    record = Record(_JOB, **arguments)
    record.model_dir = None if folder is None else str(folder)
    return record


def checkpoint(folder):
    path, step, _ = _record(folder).newest()
    return path and pathlib.Path(path).name, step


def test_a_checkpoint_whose_files_are_all_there_is_safe(saved):
    assert checkpoint(saved) == ("model.ckpt-20", 20)


@pytest.mark.parametrize("lost", [".index", ".data-00000-of-00001"])
def test_where_the_newest_lacks_a_file_the_one_before_is_safe(saved, tmp_path, lost):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    (tmp_path / f"model.ckpt-20{lost}").unlink()
    assert checkpoint(tmp_path) == ("model.ckpt-10", 10)
    for rest in tmp_path.glob("model.ckpt-10.*"):
        rest.unlink()
    assert checkpoint(tmp_path) == (None, None)


def test_tasks_that_train_several_models_have_the_same_folders_in_the_same_order(
    tmp_path,
):
    first, second, other = (str(tmp_path / name) for name in ("a", "b", "c"))
    record = _record()
    chief, worker, again = _CHIEFS, _WORKERS, Run(task=_WORKER, attempt=1)
    for run, path in (
        (chief, first),
        (chief, first),  # it trains this model on
        (chief, second),
        (worker, first),
        (worker, second),
        (again, first),
    ):
        record.hear(run, {"model_dir": path})
        assert record.problem() is None
    assert record.model_dir == second
    record.hear(again, {"model_dir": other})
    assert record.problem() == (
        f"worker 0 has the model_dir {other!r}, and another task {second!r}; give all "
        "tasks the same, such as RunConfig(model_dir=...)"
    )


def test_tasks_that_each_train_alone_in_one_folder_end_the_job(tmp_path):
    record, again = _record(), Run(task=_CHIEF, attempt=1)
    for run, name, saves in (
        (_CHIEFS, "a", True),
        (again, "a", True),
        (_WORKERS, "b", True),
        (_WORKERS, "a", False),  # it reads there
    ):
        path = str(tmp_path / name)
        record.hear(run, {"checkpoint_dir": path, "saves": saves})
        assert record.problem() is None
    record.hear(_WORKERS, {"checkpoint_dir": str(tmp_path / "a"), "saves": True})
    assert record.problem().startswith(
        f"chief and worker 0 both save checkpoints to '{tmp_path}/a': each trains alone"
    )


def _last_line(record):
    return str(record.outcome(1, "stopped")).splitlines()[-1]


def test_what_is_not_known_here_is_not_taken_for_no_checkpoint(tmp_path):
    unknown = "newest good checkpoint: not known here, as "
    assert _last_line(_record()) == unknown + "no task has said where it saves them"
    remote = _record()
    remote.hear(_CHIEFS, {"model_dir": "gs://bucket/model/"})
    assert _last_line(remote) == unknown + "only TensorFlow reads gs://bucket/model"
    assert _last_line(_record(tmp_path / "none")) == "no checkpoint was saved"
    loop = tmp_path / "loop"
    loop.symlink_to("loop")  # nobody can read it, not even root
    assert _last_line(_record(loop)) == (
        f"{unknown}{loop} cannot be read: Too many levels of symbolic links"
    )


def test_lines_from_before_the_model_directory_is_known_are_in_the_logs_there(
    tmp_path,
):
    record = _record()
    record.logs.write(_CHIEF, "early")
    record.hear(_CHIEFS, {"model_dir": str(tmp_path)})
    record.logs.write(_CHIEF, "late")
    assert "all logs" not in str(record.outcome(1, "stopped"))
    assert (tmp_path / "logs" / "chief-0.log").read_text() == "early\nlate\n"


def test_logs_are_not_written_to_a_folder_that_is_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "logs").symlink_to(tmp_path / "elsewhere")
    record = _record()
    record.hear(_CHIEFS, {"model_dir": str(tmp_path / "model")})
    assert record.problem() == (
        f"log folder '{tmp_path}/model/logs' is a symbolic link, which somebody else "
        f"may have made; give --log-dir '{tmp_path}/elsewhere' to write there"
    )
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.fixture
def spoil(saved, tmp_path):
    """Return a function that saves NaN at a step, in a copy of the folder `saved`."""
    import tensorflow as tf

    shutil.copytree(saved, tmp_path / "model")

    def spoil(step):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            value = tf.compat.v1.Variable(float("nan"), name="weight")
            session.run(value.initializer)
            saver = tf.compat.v1.train.Saver(save_relative_paths=True)
            saver.save(session, str(tmp_path / "model" / "model.ckpt"), step)

    return spoil


def test_a_checkpoint_with_nan_is_named_as_such_where_a_loss_was_nan(spoil, tmp_path):
    said = []
    path = str(tmp_path / "model")
    record = _record(path, say=said.append)
    for is_nan in (False, True):
        assert said == []
        outcome = record.outcome(1, "stopped", is_nan=is_nan)
        assert str(outcome) == f"stopped\nnewest good checkpoint: {path}/model.ckpt-20"
    assert said == [f"a loss was NaN: searching the checkpoints in {path} for NaN"]
    spoil(30)
    assert str(record.outcome(1, "stopped", is_nan=True)) == (
        f"stopped\nnewest good checkpoint: {path}/model.ckpt-20\n"
        f"newer, but with NaN in 'weight': {path}/model.ckpt-30; move "
        f"{path}/model.ckpt-30.* away, or training goes on from it"
    )
    spoil(40)
    assert str(record.outcome(1, "stopped", is_nan=True)).endswith(
        f"newer, but with NaN in 'weight': {path}/model.ckpt-40, and 1 before it; move "
        f"{path}/model.ckpt-40.* {path}/model.ckpt-30.* away, or training goes on from "
        "them"
    )
    # Nobody has said that NaN is wrong in this model.
    assert _last_line(record) == f"newest good checkpoint: {path}/model.ckpt-40"


def test_where_all_checkpoints_have_nan_none_is_named_as_good(spoil, tmp_path):
    path = str(tmp_path / "model")
    record = _record(path)
    for step in (10, 20):
        spoil(step)
    outcome = record.outcome(1, "stopped", is_nan=True)
    assert (outcome.checkpoint, str(outcome)) == (
        None,
        "stopped\nnewest good checkpoint: not known here, as each has NaN: "
        f"{path}/model.ckpt-20 in 'weight'",
    )
