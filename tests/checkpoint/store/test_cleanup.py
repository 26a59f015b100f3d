"""What runs that died have left half done is finished or removed, and nothing else."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint import inventory
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.store import cleanup, commit, durable, files, locks
from estimator_runtime.checkpoint.store.state_file import State, read_state, write_state
from estimator_runtime.cli.main import main

er.install()

DATA = "data-00000-of-00001"


# Linux gives no process a higher one than 2**22; that of one that has died may be used
# again at once.
DEAD_PID = 2**22 + 1


def hidden_name(number, pid=DEAD_PID, host=None, **identity):
    """Return the name at which a process of this machine, or of `host`, has saved."""
    own = durable.own_identity()._replace(**({"boot": "other"} if host else {}))
    of_pid = (not host and durable.identity_of(pid)) or own
    owner = ".".join(of_pid._replace(**identity))
    return f".model.ckpt-{number}.saving-{pid}-{host or socket.gethostname()}+{owner}"


def name_in_state(folder, *numbers):
    paths = tuple(str(folder / f"model.ckpt-{number}") for number in numbers)
    write_state(str(folder), State(latest=paths[-1], paths=paths))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def leave_behind(folder, name, content=b"half"):
    path = folder / name
    path.mkdir()
    (path / "model.ckpt-40.index").write_bytes(content)
    return path


def test_what_a_dead_run_has_left_is_removed(ckpt):
    leave_behind(ckpt, hidden_name(40))
    (ckpt / "model.ckpt-40.data-00000-of-00001").write_bytes(b"half")
    before = [n for n in names(ckpt) if "-40" not in n]
    assert recovery.recover(str(ckpt)).step == 30
    assert names(ckpt) == before


def died_before_deleting(folder, *steps):
    """Leave what a run does that died when the checkpoint of step 30 was named."""
    path = folder / hidden_name(30)
    path.mkdir()
    commit.leave_note(path, [str(folder / f"model.ckpt-{step}") for step in steps])
    newest = str(folder / "model.ckpt-30")
    write_state(str(folder), State(latest=newest, paths=(newest,)))
    return path


def test_what_a_dead_run_was_to_delete_goes_when_its_reader_has_left(ckpt):
    left = died_before_deleting(ckpt, 10, 20)
    with locks.reading(str(ckpt / "model.ckpt-10")) as is_there:
        assert is_there
        for _ in range(2):
            assert recovery.recover(str(ckpt)).step == 30
            assert [each.step for each in files.find(ckpt)] == [10, 30]
        cleanup.delete_late(str(ckpt))
        assert [each.step for each in files.find(ckpt)] == [10, 30]
    assert left.exists()
    assert recovery.recover(str(ckpt)).step == 30
    assert [each.step for each in files.find(ckpt)] == [30]
    assert not left.exists()


NO_NOTES = {
    "cut off": b'["model.ckpt-1',
    "empty": b"",
    "no text": b"\xff\xfe",
    "a number": b"5",
    "null": b"null",
    "an object": b'{"model.ckpt-10": 1}',
    "a text": b'"model.ckpt-10"',
    "numbers": b"[10, 20]",
    "lists": b'[["model.ckpt-10"]]',
    "a path with NUL": b'["model.ckpt\\u0000-10", "a\\u0000/model.ckpt-30"]',
    "a long number": b'["model.ckpt-' + b"9" * 5000 + b'"]',
    "deep": b"[" * 100_000,
    "of another series": b'["other-10", "model.ckpt", "../model.ckpt-10/"]',
}


@pytest.mark.parametrize("name", ["gone.json", "late.json"])
@pytest.mark.parametrize("note", NO_NOTES)
def test_a_note_of_another_kind_deletes_nothing_and_goes(ckpt, name, note):
    before = names(ckpt)
    left = died_before_deleting(ckpt)
    (left / name).write_bytes(NO_NOTES[note])
    assert recovery.recover(str(ckpt)).step == 30
    assert names(ckpt) == before


@pytest.mark.parametrize("name", ["gone.json", "late.json"])
@pytest.mark.parametrize("spelling", ["{0}", ".", "{0}/../{1}", "/elsewhere"])
@pytest.mark.parametrize("named, of", [((20,), 20), ((20,), 30), ((20, 10), 20)])
def test_a_note_never_deletes_what_is_named_or_newer(ckpt, name, spelling, named, of):
    """As after a rewind to step 20, by hand."""
    left = hidden_of(ckpt, of)
    # The second in the state file, so that its latest one has a place of its own.
    paths = tuple(f"model.ckpt-{number}" for number in named)
    (ckpt / "checkpoint").write_text(
        f'model_checkpoint_path: "{paths[0]}"\n'
        + "".join(f'all_model_checkpoint_paths: "{path}"\n' for path in paths[::-1])
    )
    folder = spelling.format(ckpt, ckpt.name)
    (left / name).write_text(
        json.dumps([f"{folder}/model.ckpt-{number}" for number in (20, 30)])
    )
    cleanup._delete_noted(str(left))
    cleanup._delete_noted(os.path.relpath(left))
    assert [each.step for each in files.find(ckpt)] == [10, 20, 30]


def test_a_note_is_on_the_disk_before_the_state_file_names_the_new_one(
    tmp_path, monkeypatch
):
    synced = []
    sync = os.fsync

    def noted(descriptor):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    commit.leave_note(str(hidden), [])
    assert (synced, names(hidden)) == ([], [])
    commit.leave_note(str(hidden), ["model.ckpt-1"])
    assert [each.partition(".saving")[0] for each in synced] == [".gone.json", "hidden"]


def test_a_training_deletes_it_with_its_next_save(ckpt):
    left = died_before_deleting(ckpt, 10)
    with tf.Graph().as_default(), contextlib.ExitStack() as reader:
        reader.enter_context(locks.reading(str(ckpt / "model.ckpt-10")))
        tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
        add = tf.compat.v1.train.get_or_create_global_step().assign_add(1).op
        with er.MonitoredTrainingSession(checkpoint_dir=str(ckpt)) as session:
            session.run(add)
            assert [each.step for each in files.find(ckpt)] == [10, 20, 30]
            reader.close()
    assert [each.step for each in files.find(ckpt)] == [20, 30, 31]
    assert not left.exists()


def test_what_was_saved_anew_meanwhile_is_not_deleted(ckpt):
    left = died_before_deleting(ckpt, 10)
    with locks.reading(str(ckpt / "model.ckpt-10")):
        recovery.recover(str(ckpt))
    paths = tuple(str(ckpt / f"model.ckpt-{step}") for step in (10, 30))
    write_state(str(ckpt), State(latest=paths[-1], paths=paths))
    cleanup.delete_late(str(ckpt))
    assert [each.step for each in files.find(ckpt)] == [10, 20, 30]
    assert not left.exists()


def test_a_checkpoint_that_was_complete_when_its_run_died_is_used(ckpt, caplog):
    name_in_state(ckpt, 10, 20)
    hidden_of(ckpt, 30)
    assert recovery.recover(str(ckpt)).step == 30
    assert [files.step_of(p) for p in read_state(str(ckpt)).paths] == [10, 20, 30]
    assert caplog.messages == [
        f"Training goes on from {ckpt}/model.ckpt-30, which an interrupted run "
        "saved but had not yet recorded in the state file."
    ]


def test_a_checkpoint_that_has_the_time_of_the_state_file_is_used(ckpt):
    hidden = hidden_of(ckpt, 30)
    name_in_state(ckpt, 10, 20)
    time_ns = next(
        each
        for each in range(1_795_590_000 * 10**9, 1_795_591_000 * 10**9, 123_456_789)
        if each / 1e9 > each // 10**9 + 1e-9 * (each % 10**9)  # as in st_mtime
    )
    for path in (hidden, ckpt / "checkpoint", *ckpt.rglob("model.ckpt-30.*")):
        os.utime(path, ns=(time_ns, time_ns))
    assert recovery.recover(str(ckpt)).step == 30


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_state_file_that_was_changed_after_a_run_died_wins(
    ckpt, is_moved, caplog, capsys
):
    hidden = hidden_of(ckpt, 30) if is_moved else died_while_replacing(ckpt, 30)
    name_in_state(ckpt, 10, 20)
    last = max(map(changed_ns, [hidden, *ckpt.rglob("model.ckpt-30.*")]))
    os.utime(ckpt / "checkpoint", ns=(last + 1000, last + 1000))
    main(["checkpoints", str(ckpt)])
    [line] = [x for x in capsys.readouterr().out.splitlines() if "from here" in x]
    assert line.split()[0] == "20"
    for _ in range(2):
        assert recovery.recover(str(ckpt)).step == 20
    assert [files.step_of(p) for p in read_state(str(ckpt)).paths] == [10, 20]
    assert files.at(str(ckpt / "model.ckpt-30")).problem() is None
    assert not hidden.exists()
    assert caplog.messages == [
        f"Training does not go on from {ckpt}/model.ckpt-30, which an interrupted run "
        "saved: the state file was changed after that and does not name it. The "
        "checkpoint stays where it is; to go on from it, name it in the state file."
    ]


@pytest.mark.parametrize("has_state", [True, False])
@pytest.mark.parametrize("number", [40, 100])  # in the order of names, or not
def test_the_newest_of_several_saves_of_dead_runs_is_used(
    ckpt, caplog, has_state, number
):
    for path in sorted(ckpt.glob("model.ckpt-20.*")):
        shutil.copy(path, ckpt / path.name.replace("20", str(number)))
    name_in_state(ckpt, 10, 20)
    if not has_state:
        (ckpt / "checkpoint").unlink()
        for path in ckpt.glob("model.ckpt-[12]0.*"):
            path.unlink()
    died_while_replacing(ckpt, 30)
    died_while_replacing(ckpt, number)
    assert inventory.take(str(ckpt)).restart.step == number
    assert recovery.recover(str(ckpt)).step == number
    assert not [m for m in caplog.messages if "does not go on" in m]


def test_where_clocks_are_coarse_a_state_file_of_the_same_time_is_the_older_one(ckpt):
    name_in_state(ckpt, 10, 20)
    hidden = hidden_of(ckpt, 30)
    for path in (hidden, *ckpt.iterdir()):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert recovery.recover(str(ckpt)).step == 30


def test_a_run_that_dies_as_it_replaces_a_checkpoint_has_not_changed_the_state_file(
    ckpt,
):
    before = changed_ns(ckpt / "checkpoint")
    commit.forget(str(ckpt), str(ckpt / "model.ckpt-30"))
    assert [files.step_of(p) for p in read_state(str(ckpt)).paths] == [10, 20]
    assert changed_ns(ckpt / "checkpoint") == before


def changed_ns(path):
    return path.stat().st_mtime_ns


def test_what_a_living_process_writes_is_left_alone(ckpt):
    path = leave_behind(ckpt, hidden_name(40, os.getppid()))
    stock = leave_stock(ckpt, "model.ckpt-40_temp")
    other = leave_behind(ckpt, "notes_temp")
    recovery.recover(str(ckpt))
    assert path.is_dir() and stock.is_dir() and other.is_dir()


def test_what_tensorflow_has_left_is_removed_once_it_is_old(ckpt):
    stock = leave_stock(ckpt, "model.ckpt-40_temp")
    other = leave_behind(ckpt, "notes_temp")
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


def hidden_of(folder, *args, **kwargs):
    """Make the hidden folder of a checkpoint, of a process that died."""
    path = folder / hidden_name(*args, **kwargs)
    path.mkdir()
    return path


@pytest.mark.parametrize("named", [(30,), (20, 30)])
def test_training_does_not_fall_back_to_what_a_dead_run_has_completed(ckpt, named):
    # Its host was another: so it was left alone, and training went on past it.
    hidden = hidden_of(ckpt, 10, host="elsewhere")
    os.utime(hidden, (1, 1))
    name_in_state(ckpt, *named)
    assert recovery.recover(str(ckpt)).step == 30
    assert [files.step_of(path) for path in read_state(str(ckpt)).paths] == [*named]
    assert [each.step for each in files.find(ckpt)] == [10, 20, 30]
    assert not hidden.exists()


def test_without_a_state_file_the_newest_is_used_whoever_has_completed_it(ckpt):
    hidden_of(ckpt, 10)
    (ckpt / "checkpoint").unlink()
    assert recovery.recover(str(ckpt)).step == 30


def died_while_replacing(folder, number, moved=()):
    """Leave what a run does that has deleted a checkpoint to save it once more."""
    hidden = hidden_of(folder, number)
    for path in folder.glob(f"model.ckpt-{number}.*"):
        if not path.name.endswith(moved):
            path.rename(hidden / path.name)
    return hidden


@pytest.mark.parametrize("moved", [(), (DATA,), (DATA, ".meta")], ids=str)
@pytest.mark.parametrize("named", [(30,), (10, 20)], ids=str)
def test_a_save_that_replaces_a_checkpoint_is_completed(ckpt, moved, named):
    before = {name: (ckpt / name).read_bytes() for name in names(ckpt)}
    name_in_state(ckpt, *named)
    hidden = died_while_replacing(ckpt, 30, moved)
    assert recovery.recover(str(ckpt)).step == 30
    assert files.at(str(ckpt / "model.ckpt-30")).problem() is None
    assert not hidden.exists()
    del before["checkpoint"]
    after = {name: (ckpt / name).read_bytes() for name in names(ckpt)}
    assert after.items() >= before.items()


def test_half_of_a_save_that_replaces_a_checkpoint_is_not_taken_for_one(ckpt):
    name_in_state(ckpt, 10, 20)
    hidden = died_while_replacing(ckpt, 30)
    os.truncate(hidden / f"model.ckpt-30.{DATA}", 100)
    assert recovery.recover(str(ckpt)).step == 20
    assert [each.step for each in files.find(ckpt)] == [10, 20]


def test_a_copy_of_a_folder_deletes_nothing_in_the_original(ckpt, tmp_path):
    died_before_deleting(ckpt, 10, 20)
    shutil.copytree(ckpt, tmp_path / "copy")
    recovery.recover(str(tmp_path / "copy"))
    assert [each.step for each in files.find(ckpt)] == [10, 20, 30]
    assert [each.step for each in files.find(tmp_path / "copy")] == [30]


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
folder, version, sharded = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
with tf.Graph().as_default(), v1.Session() as session:
    v1.get_variable("v", [1 << 18], initializer=v1.zeros_initializer())
    saver = v1.train.Saver(write_version=version, sharded=sharded)
    session.run(v1.global_variables_initializer())
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
    saver.save(session, folder + "/model.ckpt", global_step=40)
"""


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_what_a_saver_leaves_that_is_killed_in_a_write_is_removed_once_it_is_old(
    tmp_path, version, sharded
):
    number = getattr(tf.compat.v1.train.SaverDef, version)
    done = subprocess.run(
        [sys.executable, "-c", STOCK, tmp_path, str(number), str(sharded)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    left = names(tmp_path)
    assert len(left) == 1
    [path] = cleanup.temporaries(str(tmp_path))
    assert cleanup.prefix_of(path) == f"{tmp_path}/model.ckpt-40"
    changed_at = cleanup.changed_at(path)
    cleanup.clean_up(str(tmp_path), now=lambda: changed_at + 599)
    assert names(tmp_path) == left
    cleanup.clean_up(str(tmp_path), now=lambda: changed_at + 601)
    assert names(tmp_path) == []


def test_what_a_process_writes_is_left_alone_for_as_long_as_it_lives(ckpt):
    hidden = hidden_of(ckpt, 40, pid=os.getppid())
    (hidden / "model.ckpt-40.index").write_bytes(b"half")
    cleanup.clean_up(str(ckpt), now=lambda: time.time() + 100_000)
    assert hidden.is_dir()


def test_what_a_hidden_process_writes_is_left_alone_while_it_holds_the_lock(ckpt):
    hidden = hidden_of(ckpt, 40, pid=os.getppid(), started="2")
    (hidden / "model.ckpt-40.index").write_bytes(b"half")
    holder = os.open(hidden, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    cleanup.clean_up(str(ckpt))
    assert hidden.is_dir()
    os.close(holder)
    cleanup.clean_up(str(ckpt))
    assert not hidden.exists()


def test_a_process_that_has_the_number_of_a_dead_one_is_not_taken_for_it(ckpt):
    hidden = hidden_of(ckpt, 40, pid=os.getppid(), started="1")
    recovery.recover(str(ckpt))
    assert not hidden.exists()


def test_what_is_gone_is_not_dead(tmp_path):
    gone = tmp_path / hidden_name(40)
    assert not cleanup.is_dead(str(gone))


def test_what_cannot_be_removed_is_named_and_training_goes_on(ckpt):
    with tempfile.TemporaryDirectory() as folder:  # nobody else may read pytest's
        here = pathlib.Path(folder) / "ckpt"
        shutil.copytree(ckpt, here)
        hidden = hidden_of(here, 40)
        (hidden / "model.ckpt-40.index").write_bytes(b"half")
        for path in (pathlib.Path(folder), here):
            path.chmod(0o777)
        hidden.chmod(0o555)
        program = (
            "import logging, os, sys; logging.basicConfig(format='%(message)s'); "
            "from estimator_runtime.checkpoint.restore import recovery; "
            # Another user may not be able to read what this one has installed.
            "from google.protobuf import descriptor_pb2, message_factory, text_format; "
            "os.getuid() or os.setuid(65534); "
            "print(recovery.recover(sys.argv[1]).step)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, here],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.stdout == "30\n", done.stderr
    assert done.stderr == (
        f"{hidden}, which a run that died left behind, cannot be removed: "
        "Permission denied\n"
    )


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
    assert [files.step_of(path) for path in read_state(str(ckpt)).paths] == [10, 30]
    with pytest.raises(FileNotFoundError):
        durable.sync_folder(str(ckpt / "no such folder"))


def test_a_file_of_which_no_links_are_counted_is_synced(ckpt, monkeypatch):
    hidden = hidden_of(ckpt, 30)
    for path in ckpt.glob("model.ckpt-30.*"):
        path.rename(hidden / path.name)
    synced = []
    sync, stat = durable.sync_file, os.stat

    def uncounted(path, **how):
        found = list(stat(path, **how))
        found[3] = 0
        return os.stat_result(found)

    def noted(path):
        synced.append(os.path.basename(path))
        sync(path)

    expected = names(hidden)
    monkeypatch.setattr(os, "stat", uncounted)
    monkeypatch.setattr(durable, "sync_file", noted)
    commit.move_in(str(hidden), str(ckpt / "model.ckpt-30"))
    monkeypatch.undo()
    assert sorted(synced[:-1]) == expected
