"""Which files a Saver's checkpoints leave in a folder, over several runs."""

import errno
import math
import os
import pathlib
import re
import threading
import time
from concurrent import futures

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import Checkpoint, checkpoints_in
from estimator_runtime.checkpoint.save.snapshot import Snapshot
from estimator_runtime.checkpoint.store import durable
from estimator_runtime.checkpoint.store.series import Series
from estimator_runtime.checkpoint.store.state_file import State, read_state, write_state
from estimator_runtime.checkpoint.tensor_bundle.writer import BundleWriter
from estimator_runtime.config.paths import step_of
from estimator_runtime.errors import CheckpointError

er.install()

tf1 = tf.compat.v1
train = tf1.train
FOREIGN = [
    "notes.txt",
    "model.ckpt-1.notes",
    "other.ckpt-1.index",
    "model.ckpt-x.index",
    "model-?????-of-00002.index",
    ".model.ckpt-4.saving-²-host",
]


def train_to(folder, last, master="", **saver):
    """Train on, saving every second step; give what the Saver says at the end."""
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1).op
        saver = train.Saver(save_relative_paths=True, **saver)
        with er.MonitoredTrainingSession(
            master,
            checkpoint_dir=str(folder),
            save_checkpoint_steps=2,
            scaffold=train.Scaffold(saver=saver),
            hooks=[train.StopAtStepHook(last_step=last)],
        ) as session:
            while not session.should_stop():
                session.run(step)
        return [step_of(path) for path in saver.last_checkpoints]


def steps_on_disk(folder):
    return [each.step for each in checkpoints_in(folder) if each.problem() is None]


def test_the_newest_are_kept_over_several_runs_and_foreign_files_stay(tmp_path):
    folder = tmp_path / "model"
    assert train_to(folder, 6, max_to_keep=2) == [4, 6]
    assert steps_on_disk(folder) == [4, 6]
    for name in FOREIGN:
        (folder / name).write_text("mine")
    assert train_to(folder, 9, max_to_keep=2) == [8, 9]
    assert steps_on_disk(folder) == [8, 9]
    assert [step_of(path) for path in read_state(folder).paths] == [8, 9]
    assert [(folder / name).read_text() for name in FOREIGN] == ["mine"] * len(FOREIGN)


def series_in(folder, newest, now=time.time, restored=(), **saver):
    """Return a Series of a folder, and what writes a checkpoint of its one variable.

    Args:
        folder: The folder.
        newest: How many the Saver keeps.
        now: The clock.
        restored: What TensorFlow's SessionManager tells the Saver of an earlier run:
            the path and the time of each checkpoint.
        **saver: Further arguments of the Saver.
    """
    tf1.get_variable("v", initializer=1.0)
    saver = train.Saver(max_to_keep=newest, save_relative_paths=True, **saver)
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        saver.set_last_checkpoints_with_time(list(restored))
        snapshot = Snapshot(session, saver)
        values, bundles = snapshot.take(), BundleWriter(snapshot.saved)
    series = Series(saver, str(folder / "model.ckpt"), now=now)
    return series, lambda path: bundles.write(path, values)


def test_one_each_n_hours_is_kept_for_good_also_when_runs_are_shorter(
    tmp_path, monkeypatch
):
    minutes = [0]
    prefix = str(tmp_path / "model.ckpt")

    def seconds():
        return 60.0 * minutes[0]

    def run(at_minutes, restored=()):
        """Save at these minutes; step and time are one."""
        minutes[0] = at_minutes[0]
        with tf.Graph().as_default():
            hours = {"keep_checkpoint_every_n_hours": 1}
            series, write = series_in(tmp_path, 1, seconds, restored, **hours)
            for minutes[0] in at_minutes:
                series.add(minutes[0], write, 4)

    monkeypatch.setattr(time, "time", seconds)
    run([0, 40, 80, 120])
    # Not 0 and 40: less than an hour after the start. Not 120, if 150 comes.
    assert steps_on_disk(tmp_path) == [80, 120]
    assert read_state(tmp_path).last_preserved == 60 * 60
    run([150, 200], restored=[(f"{prefix}-120", 120 * 60.0)])
    assert steps_on_disk(tmp_path) == [80, 150, 200]
    assert read_state(tmp_path).last_preserved == 120 * 60
    state = train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == f"{prefix}-200"
    assert list(state.all_model_checkpoint_timestamps) == [200 * 60]


@pytest.mark.parametrize("wrong", [1e12, math.inf, math.nan])
def test_a_clock_that_was_ahead_does_not_end_that_one_each_n_hours_is_kept(
    tmp_path, wrong
):
    """An earlier run has kept one at that time."""
    hours, prefix = [0.0], str(tmp_path / "model.ckpt")
    state = State(latest=f"{prefix}-1", paths=(f"{prefix}-1",), last_preserved=wrong)
    write_state(str(tmp_path), state)

    def seconds():
        return 1e9 + 3600 * hours[0]

    with tf.Graph().as_default():
        each = {"keep_checkpoint_every_n_hours": 2}
        series, write = series_in(tmp_path, 1, seconds, **each)
        for hours[0] in (2, 3, 5, 6):
            series.add(hours[0], write, 4)
    assert steps_on_disk(tmp_path) == [5, 6]
    assert read_state(tmp_path).last_preserved == 1e9 + 4 * 3600


@pytest.mark.parametrize("in_cluster", [False, True])
def test_an_old_one_goes_when_the_new_one_is_on_the_disk_and_named(
    tmp_path, monkeypatch, in_cluster
):
    server = tf.distribute.Server.create_local_server()
    sync, seen = durable.sync_file, []

    def noting(path):
        name = os.path.basename(path)
        if ".ckpt-2." in name:
            state = read_state(tmp_path)
            named = [step_of(each) for each in state.paths]
            seen.append((name.rpartition(".")[2], named, steps_on_disk(tmp_path)[0]))
        sync(path)

    monkeypatch.setattr(durable, "sync_file", noting)
    assert train_to(tmp_path, 3, server.target * in_cluster, max_to_keep=1) == [3]
    kinds = ["data-00000-of-00001", "index"]
    found = [each for each in seen if each[0] in kinds]
    assert sorted(found) == [(kind, [0], 0) for kind in kinds]
    assert steps_on_disk(tmp_path) == [3]


@pytest.mark.parametrize("max_to_keep", [1, 3])
@pytest.mark.parametrize("whose", ["the same saver", "another saver"])
def test_a_write_that_ends_late_does_not_take_the_place_of_a_newer_one(
    tmp_path, around_writes, caplog, whose, max_to_keep
):
    begun, may_end = threading.Event(), threading.Event()

    def wait(prefix):
        if prefix.endswith("-2"):
            begun.set()
            assert may_end.wait(20)

    around_writes(before=wait)
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1).op
        saver, other = (train.Saver(max_to_keep=max_to_keep) for _ in range(2))
        own = saver if whose == "the same saver" else other
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=2,
            scaffold=train.Scaffold(saver=saver),
        ) as session:
            [hook] = [h for h in session._hooks if hasattr(h, "measures")]
            for _ in range(3):
                session.run(step)
            assert begun.wait(20)
            prefix = str(tmp_path / "model.ckpt")
            raw = session.run_step_fn(lambda step_context: step_context.session)

            def save():
                with raw.graph.as_default():
                    own.save(raw, prefix, global_step=3)

            # In the thread that trains it would wait for the write.
            with futures.ThreadPoolExecutor() as another_thread:
                another_thread.submit(save).result(20)
            may_end.set()
            hook.finish_background_work()
            state = read_state(tmp_path)
            assert step_of(state.latest) == 3
            assert [
                path for path in state.paths if not Checkpoint.at(path).has_index
            ] == []
            in_view = {step_of(path) for path in own.last_checkpoints}
            assert 3 in in_view
            for _ in range(2):
                session.run(step)
            hook.finish_background_work()
            assert step_of(read_state(tmp_path).latest) == 4
    warnings = [m for m in caplog.messages if "stays the newest checkpoint" in m]
    assert warnings == [
        f"{prefix}-3 stays the newest checkpoint, beside model.ckpt-2 of an earlier "
        "step: another hook or the program saves to this folder too. Let only one do "
        "so"
    ]


def test_two_savers_of_one_folder_do_not_disturb_each_other(tmp_path):
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1).op
        saver = train.Saver(max_to_keep=3)
        hook = train.CheckpointSaverHook(str(tmp_path), save_steps=2, saver=saver)
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=1,
            scaffold=train.Scaffold(saver=saver),
            hooks=[hook, train.StopAtStepHook(last_step=20)],
        ) as session:
            while not session.should_stop():
                session.run(step)
    assert steps_on_disk(tmp_path) == [18, 19, 20]
    assert [n for n in os.listdir(tmp_path) if n.startswith(".")] == []


def test_each_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []

    def noted(name):
        original = getattr(os, name)

        def call(*args, **kwargs):
            path = args[0]
            if name == "fsync":
                path = os.readlink(f"/proc/self/fd/{path}")
            shown = os.path.relpath(path, tmp_path)
            if "dir_fd" not in kwargs:  # those of rmtree, when all is done
                calls.append((name, re.sub(r"saving-.*?(?=/|$)", "saving", shown)))
            return original(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    with tf.Graph().as_default():
        series, write = series_in(tmp_path, newest=1)
        series.add(1, write, 4, b"graph")
        for name in ("fsync", "rename", "replace", "unlink"):
            noted(name)
        series.add(2, write, 4, b"graph")
    monkeypatch.undo()
    hidden, data = ".model.ckpt-2.saving/model.ckpt-2", "data-00000-of-00001"
    # The .meta file is a link to that of step 1, which is on the disk.
    assert [each for each in calls if each[1] != f"{hidden}.meta"] == [
        ("fsync", f"{hidden}.{data}"),
        ("fsync", f"{hidden}.index"),
        ("rename", f"{hidden}.{data}"),
        ("rename", f"{hidden}.index"),
        ("fsync", "."),
        ("fsync", ".checkpoint.saving"),
        ("replace", ".checkpoint.saving"),
        ("fsync", "."),
        ("unlink", "model.ckpt-1.index"),
        ("unlink", "model.ckpt-1.meta"),
        ("unlink", f"model.ckpt-1.{data}"),
        ("fsync", ".checkpoint.saving"),
        ("replace", ".checkpoint.saving"),
        ("fsync", "."),
    ]
    assert [each for each in calls if each[1] == f"{hidden}.meta"] == [
        ("rename", f"{hidden}.meta")
    ]


def test_a_save_that_cannot_get_its_names_has_none_of_them(tmp_path, monkeypatch):
    rename = os.rename

    def fail_for_index(source, target):
        if str(target).endswith("model.ckpt-2.index"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    with tf.Graph().as_default():
        series, write = series_in(tmp_path, newest=5)
        series.add(1, write, 4)
        before = sorted(os.listdir(tmp_path))
        monkeypatch.setattr(os, "rename", fail_for_index)
        with pytest.raises(CheckpointError, match="Input/output error"):
            series.add(2, write, 4)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_saver_of_nothing_saves_nothing(tmp_path):
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1).op
        saver = train.Saver([], allow_empty=True)
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=1,
            scaffold=train.Scaffold(saver=saver),
            hooks=[train.StopAtStepHook(last_step=2)],
        ) as session:
            while not session.should_stop():
                session.run(step)
    assert steps_on_disk(tmp_path) == []


def test_a_save_that_any_error_ends_leaves_nothing_and_can_be_tried_again(tmp_path):
    with tf.Graph().as_default():
        tf1.get_variable("v", initializer=1.0)
        series = Series(train.Saver(), str(tmp_path / "model.ckpt"))

    def write(prefix):
        pathlib.Path(f"{prefix}.index").write_text("half")
        raise MemoryError

    for _ in range(2):
        with pytest.raises(MemoryError):
            series.add(5, write, 0)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("max_to_keep", [0, None])
def test_where_all_are_kept_the_last_of_each_run_is_named_as_by_tensorflow(
    tmp_path, max_to_keep
):
    for last in (3, 6, 9):
        train_to(tmp_path, last, max_to_keep=max_to_keep)
    named = [step_of(path) for path in read_state(tmp_path).paths]
    assert named == [3, 6, 9]
    assert steps_on_disk(tmp_path) == [0, 2, 3, 5, 6, 8, 9]
