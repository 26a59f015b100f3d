"""What runs that died have left half done is undone or removed, and nothing else."""

import errno
import os
import pathlib
import shutil
import signal

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint import inventory
from estimator_runtime.checkpoint.checkpoint import checkpoints_in
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.store import cleanup, durable, locks, state_file
from estimator_runtime.checkpoint.store.commit import SavingFolder
from estimator_runtime.checkpoint.store.state_file import State, read_state, write_state
from estimator_runtime.config.paths import step_of

er.install()

DATA = "data-00000-of-00001"


def name_in_state(folder, *numbers):
    paths = tuple(str(folder / f"model.ckpt-{number}") for number in numbers)
    write_state(str(folder), State(latest=paths[-1], paths=paths))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def steps(folder):
    return [each.step for each in checkpoints_in(folder)]


def listed(folder):
    return [step_of(path) for path in read_state(str(folder)).paths]


def died(folder, number, name="model.ckpt"):
    """Make the hidden folder of a save, of a process that died: nobody locks it."""
    saving = SavingFolder(durable.temporary_name(str(folder / f"{name}-{number}")))
    os.mkdir(saving.path)
    (pathlib.Path(saving.path) / "begun").touch()
    return saving


def died_before_writing_the_state_file(folder, number):
    """Save a checkpoint as far as to its final names."""
    saving = died(folder, number)
    (pathlib.Path(saving.path) / "new").touch()
    for path in folder.glob("model.ckpt-30.*"):
        shutil.copy(path, folder / path.name.replace("-30.", f"-{number}."))
    return saving


def died_before_deleting(folder, *obsolete):
    """Leave what a run does that died when the checkpoint of step 30 was named."""
    saving = died(folder, 30)
    name_in_state(folder, *obsolete, 30)
    return saving


def test_what_a_dead_run_has_left_is_removed(ckpt):
    before = names(ckpt)
    saving = SavingFolder.create(str(ckpt / "model.ckpt-40"))
    pathlib.Path(f"{saving.inside}.index").write_bytes(b"half")
    (ckpt / f"model.ckpt-40.{DATA}").write_bytes(b"half")
    assert recovery.recover(str(ckpt)).step == 30
    assert os.path.isdir(saving.path)  # it is being written
    locks.unlock_folder(saving.path)
    assert recovery.recover(str(ckpt)).step == 30
    assert names(ckpt) == before


def test_a_checkpoint_that_was_not_recorded_when_its_run_died_is_removed(ckpt, caplog):
    before = names(ckpt)
    died_before_writing_the_state_file(ckpt, 40)
    found = inventory.take(str(ckpt))
    assert (found.restart.step, found.is_sound) == (30, True)
    assert [(e.step, e.state) for e in found.entries[3:]] == [(40, "temporary")]
    assert recovery.recover(str(ckpt)).step == 30
    assert names(ckpt) == before
    assert caplog.messages == [
        f"{ckpt}/model.ckpt-40 is removed, because the run that saved it died before "
        "it had recorded it in the state file"
    ]


def test_a_checkpoint_that_was_not_recorded_is_used_where_no_other_is_good(ckpt):
    died_before_writing_the_state_file(ckpt, 40)
    for path in ckpt.glob("model.ckpt-[123]0.index"):
        path.write_bytes(b"")
    assert recovery.recover(str(ckpt)).step == 40
    assert listed(ckpt) == [40]


@pytest.mark.parametrize("number", [10, 20])
def test_a_checkpoint_that_was_kept_for_good_since_stays(ckpt, number):
    """Its hidden folder was left, as where it was locked on another host."""
    name_in_state(ckpt, 30)
    saving = died(ckpt, number)
    (pathlib.Path(saving.path) / "new").touch()
    assert recovery.recover(str(ckpt)).step == 30
    assert steps(ckpt) == [10, 20, 30]
    assert not os.path.exists(saving.path)


def test_a_checkpoint_that_was_there_when_its_save_began_stays(ckpt):
    """Training went back to step 20, and died before it had saved step 30 again."""
    name_in_state(ckpt, 10, 20)
    locks.unlock_folder(SavingFolder.create(str(ckpt / "model.ckpt-30")).path)
    assert recovery.recover(str(ckpt)).step == 20
    assert steps(ckpt) == [10, 20, 30]


@pytest.mark.parametrize("moved", [(), (DATA,)], ids=str)
def test_a_checkpoint_that_was_being_replaced_is_put_back(ckpt, moved):
    before = {name: (ckpt / name).read_bytes() for name in names(ckpt)}
    saving = died(ckpt, 30)
    aside = pathlib.Path(saving.path) / "replaced"
    aside.mkdir()
    for path in ckpt.glob("model.ckpt-30.*"):
        if not path.name.endswith(moved):
            path.rename(aside / path.name)
    assert recovery.recover(str(ckpt)).step == 30
    assert {name: (ckpt / name).read_bytes() for name in names(ckpt)} == before


def test_what_a_dead_run_was_to_delete_goes_with_a_later_save(ckpt):
    died_before_deleting(ckpt, 10, 20)

    def train_to(step):
        with tf.Graph().as_default():
            tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
            add = tf.compat.v1.train.get_or_create_global_step().assign_add(1).op
            saver = tf.compat.v1.train.Saver(max_to_keep=1)
            with er.MonitoredTrainingSession(
                checkpoint_dir=str(ckpt),
                scaffold=tf.compat.v1.train.Scaffold(saver=saver),
                hooks=[tf.compat.v1.train.StopAtStepHook(last_step=step)],
            ) as session:
                while not session.should_stop():
                    session.run(add)

    with locks.reading(str(ckpt / "model.ckpt-10")):
        train_to(31)
        assert steps(ckpt) == [10, 31]
    train_to(32)
    assert steps(ckpt) == [32]


def test_a_copy_of_a_folder_deletes_nothing_of_the_original(ckpt, tmp_path):
    died_before_deleting(ckpt, 10, 20)
    state = read_state(str(ckpt))
    state_file.write_state(str(ckpt), state, relative=False)
    copy = tmp_path / "copy"
    shutil.copytree(ckpt, copy)
    (ckpt / "model.ckpt-10.index").unlink()
    before = names(ckpt)
    recovery.recover(str(copy))
    assert names(ckpt) == before


def test_what_tensorflow_has_left_is_removed_once_it_is_old(ckpt):
    stock = leave_stock(ckpt, "model.ckpt-40_temp")
    other = ckpt / "notes_temp"
    other.mkdir()
    recovery.recover(str(ckpt))
    assert stock.is_dir() and other.is_dir()
    for path in (stock, other, *stock.iterdir()):
        os.utime(path, (1, 1))
    recovery.recover(str(ckpt))
    assert (stock.exists(), other.is_dir()) == (False, True)


def leave_stock(folder, name):
    """Leave what TensorFlow does when it dies as it writes a shard."""
    path = folder / name
    path.mkdir()
    (path / f"part-00000-of-00001.{DATA}").write_bytes(b"all")
    (path / "part-00000-of-00001.index.tempstate123").write_bytes(b"half")
    return path


@pytest.mark.parametrize(
    "name",
    ["notes-123_temp", "checkpoint.tmp", "checkpoint.tmp-notes", "a-1.tempstate"],
)
def test_what_only_looks_like_tensorflows_is_left_alone(ckpt, name):
    path = ckpt / name
    if name.endswith("_temp"):
        leave_stock(ckpt, name)
        (path / "mine.txt").write_text("mine")
    else:
        path.write_text("mine")
    for each in (path, *path.rglob("*")):
        os.utime(each, (1, 1))
    recovery.recover(str(ckpt))
    assert path.exists()


STOCK = """
import resource, signal, sys
import tensorflow as tf

v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    v1.get_variable("v", [1 << 18], initializer=v1.zeros_initializer())
    saver = v1.train.Saver(sharded=True)
    session.run(v1.global_variables_initializer())
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
    saver.save(session, sys.argv[1] + "/model.ckpt", global_step=40)
"""


def test_what_a_saver_leaves_that_is_killed_in_a_write_is_removed_once_it_is_old(
    run_python, tmp_path
):
    done = run_python("-c", STOCK, tmp_path)
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    left = names(tmp_path)
    assert len(left) == 1
    [path] = cleanup.temporaries(str(tmp_path))
    assert cleanup.prefix_of(path) == f"{tmp_path}/model.ckpt-40"
    changed_at = cleanup.changed_at(path)
    cleanup.remove_leftovers(str(tmp_path), now=lambda: changed_at + 599)
    assert names(tmp_path) == left
    cleanup.remove_leftovers(str(tmp_path), now=lambda: changed_at + 601)
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF], ids=["EINVAL", "EBADF"])
def test_a_file_system_that_syncs_no_folders_is_one_to_save_on(
    ckpt, monkeypatch, number
):
    sync = os.fsync

    def sync_files_only(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_files_only)
    name_in_state(ckpt, 10, 30)
    assert [step_of(path) for path in read_state(str(ckpt)).paths] == [10, 30]
    with pytest.raises(FileNotFoundError):
        durable.sync_folder(str(ckpt / "no such folder"))
