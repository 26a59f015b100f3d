"""Others may write to a model directory: no content of it hangs us or leads us astray."""

import os
import shutil
import struct

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint import event_file
from estimator_runtime.checkpoint.best import BestCheckpoints, Criterion
from estimator_runtime.checkpoint.checkpoint import Checkpoint, checkpoints_in
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.store.state_file import STATE_FILE, read_state
from estimator_runtime.cli.main import main
from estimator_runtime.distributed.finish_note import FinishNote
from estimator_runtime.errors import CheckpointError, ConfigError

er.install()

# Of a process that has died: Linux gives no process a higher number than 2**22.
DEAD = ".model.ckpt-{}.saving-4194305-nowhere"
ESCAPE = "\x1b[31mred"


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def other(ckpt, tmp_path):
    """Another folder, with a checkpoint of step 40 that would be complete in `ckpt`."""
    folder = tmp_path / "other"
    folder.mkdir()
    for path in Checkpoint.at(str(ckpt / "model.ckpt-30")).files:
        shutil.copy2(path, folder / os.path.basename(path).replace("-30", "-40"))
    return folder


@pytest.fixture
def unchanged(ckpt, other):
    """After the test, `other` is as it was before."""
    before = content_of(other)
    yield
    assert content_of(other) == before


def age(path):
    """Make a save look abandoned; see `cleanup.is_dead`."""
    for each in (*path.rglob("*"), path):
        os.utime(each, (1, 1))


# Names of files that the notes of the best checkpoints must not lead to.
FOREIGN = (
    "{}/thesis.tex",
    "{}/other/model.ckpt-40",
    "../../thesis.tex",
    "../model.ckpt-20",
    "thesis-1",
)


@pytest.mark.parametrize("loss", [-1.0, 9.0], ids=["better", "worse"])
def test_notes_of_the_best_name_and_delete_nothing_elsewhere(
    ckpt, tmp_path, loss, unchanged
):
    best = ckpt / "best"
    best.mkdir()
    own = [tmp_path / "thesis.tex", best / "thesis-1"]
    for path in own:
        path.write_text("years of work")
    names = [name.format(tmp_path) for name in FOREIGN]
    noted = ", ".join(f'"{name}": {{"loss": {loss}}}' for name in names)
    (best / "metrics.json").write_text(f"{{{noted}}}")
    criterion = Criterion(keep=1, metric="loss", mode="min")
    kept = BestCheckpoints(str(ckpt), criterion)
    assert kept.offer(str(ckpt / "model.ckpt-10"), {"loss": 1.0})
    assert [path.read_text() for path in own] == ["years of work"] * 2
    assert [each.step for each in checkpoints_in(str(ckpt))] == [10, 20, 30]
    assert read_state(str(best)).paths == (f"{best}/model.ckpt-10",)
    assert (best / "metrics.json").read_text() == (
        '{\n  "model.ckpt-10": {\n    "loss": 1.0\n  }\n}'
    )


def test_a_file_without_a_suffix_is_never_deleted_as_a_checkpoint(tmp_path):
    path = tmp_path / "thesis-1"
    path.write_text("years of work")
    (tmp_path / "thesis-1.meta").touch()
    Checkpoint.at(str(path)).delete()
    assert sorted(content_of(tmp_path)) == ["thesis-1", "thesis-1.meta"]


@pytest.mark.usefixtures("unchanged")
class TestLinks:
    """A symbolic link in a model directory leads no write elsewhere."""

    def test_a_link_named_as_an_unfinished_save_is_left_alone(self, ckpt, other):
        (ckpt / DEAD.format(40)).symlink_to(other)
        age(other)
        assert recovery.recover(str(ckpt)).step == 30

    def test_a_checkpoint_that_was_moved_aside_comes_from_no_link(self, ckpt, other):
        hidden = ckpt / DEAD.format(40)
        hidden.mkdir()
        age(hidden)
        (hidden / "replaced").symlink_to(other)
        os.utime(hidden, (1, 1))
        age(other)
        assert recovery.recover(str(ckpt)).step == 30
        assert not hidden.exists()

    def test_best_as_a_link_is_refused_before_training_starts(self, ckpt, other):
        (ckpt / "best").symlink_to(other)
        config = er.RunConfig(ckpt, keep_best=1, best_metric="loss")
        estimator = tf.estimator.Estimator(lambda features: None, None, config)

        def no_input():
            pytest.fail("the training has started")

        with pytest.raises(ConfigError, match="best' is a symbolic link"):
            tf.estimator.train_and_evaluate(
                estimator,
                tf.estimator.TrainSpec(no_input, max_steps=40),
                tf.estimator.EvalSpec(no_input),
            )

    def test_a_damaged_checkpoint_is_not_moved_through_a_link(self, ckpt, other):
        (ckpt / "damaged").symlink_to(other)
        moved = Checkpoint.at(str(ckpt / "model.ckpt-30")).set_aside()
        assert moved == f"{ckpt}/damaged-2"


def pipe(path):
    os.mkfifo(path)


def device(path):
    os.symlink("/dev/zero", path)


def huge(path):
    with open(path, "wb") as file:
        os.truncate(file.fileno(), 8 << 30)


@pytest.mark.parametrize("make", [pipe, device, huge])
class TestNoFiles:
    """What is no file, or a huge one, is not waited for, and not read."""

    def test_a_state_file_is_made_again(self, ckpt, make, capsys):
        (ckpt / STATE_FILE).unlink()
        make(ckpt / STATE_FILE)
        assert main(["checkpoints", str(ckpt)]) == 0
        problem = "has 8589934592 bytes, which is too many"
        problem = problem if make is huge else "is not a regular file"
        shown = capsys.readouterr().out
        assert f"\nthe state file {problem}; a restart makes it again\n" in shown
        assert recovery.recover(str(ckpt)).step == 30
        assert read_state(str(ckpt)).latest == f"{ckpt}/model.ckpt-30"

    def test_a_state_file_beside_no_checkpoint_is_renamed(self, tmp_path, make):
        make(tmp_path / STATE_FILE)
        assert recovery.recover(str(tmp_path)) is None
        names = [each.name for each in tmp_path.iterdir()]
        assert names == [f"{STATE_FILE}.unreadable"]

    def test_tensorflow_reads_no_such_state_file(self, tmp_path, make):
        make(tmp_path / STATE_FILE)
        with pytest.raises(CheckpointError, match="; remove it, or give another fol"):
            tf.train.latest_checkpoint(str(tmp_path))

    def test_an_index_is_damaged(self, ckpt, make, capsys):
        index = ckpt / "model.ckpt-30.index"
        index.unlink()
        make(index)
        assert main(["checkpoints", str(ckpt)]) == 1
        row = capsys.readouterr().out.splitlines()[3]
        assert "damaged: its .index file " in row
        with locks.reading(str(ckpt / "model.ckpt-30")):
            pass
        assert recovery.recover(str(ckpt)).step == 20

    def test_notes_are_none(self, ckpt, make):
        make(ckpt / "training_finished.json")
        if make is not huge:  # TensorFlow reads it
            assert FinishNote(str(ckpt)).step() is None
        assert recovery.recover(str(ckpt)).step == 30

    def test_metrics_are_made_again(self, ckpt, make):
        (ckpt / "best").mkdir()
        make(ckpt / "best" / "metrics.json")
        best = BestCheckpoints(str(ckpt), Criterion(keep=1, metric="loss", mode="min"))
        assert best.offer(str(ckpt / "model.ckpt-10"), {"loss": 1.0})
        assert (ckpt / "best" / "metrics.json").is_file()

    def test_an_event_file_has_no_scalars(self, tmp_path, make):
        make(tmp_path / "events.out.tfevents.1")
        if make is huge:
            assert event_file.by_step(str(tmp_path)) == {}
            return
        with pytest.raises(OSError, match="it is not a regular file"):
            event_file.by_step(str(tmp_path))


def test_a_record_that_says_it_is_huge_is_not_read(tmp_path):
    (tmp_path / "events.out.tfevents.1").write_bytes(struct.pack("<QI", 1 << 40, 0))
    assert event_file.by_step(str(tmp_path)) == {}


def test_no_name_of_a_file_reaches_a_terminal_as_a_command(ckpt, tmp_path, capsys):
    for suffix in ("index", "meta"):
        shutil.copy(ckpt / f"model.ckpt-30.{suffix}", ckpt / f"{ESCAPE}-40.{suffix}")
    shutil.copytree(ckpt, tmp_path / ESCAPE)
    (ckpt / STATE_FILE).write_text(
        f'model_checkpoint_path: "{tmp_path}/\\033[31mred/model.ckpt-30"\n'
    )
    assert main(["checkpoints", str(ckpt)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert f"another folder, {tmp_path}/\\x1b[31mred; " in shown
    assert "-40" not in shown
