"""A disk that is full, or may not be written, costs the newest checkpoint only."""

import contextlib
import functools
import os
import re
import resource
import subprocess

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import checkpoints_in
from estimator_runtime.checkpoint.hook import CheckpointHook
from estimator_runtime.checkpoint.save.writer import wait_for_own
from estimator_runtime.config.paths import step_of
from estimator_runtime.errors import CheckpointError

er.install()

tf1 = tf.compat.v1
train = tf1.train
MEGABYTE = 2**20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, timeout=60)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60)


def train_to(folder, last, master="", saver=train.Saver):
    """Train a megabyte of variables on, saving every second step."""
    with tf.Graph().as_default():
        v = tf1.get_variable("v", [MEGABYTE // 4], initializer=tf1.zeros_initializer())
        with tf.control_dependencies([v.assign_add(tf.ones_like(v))]):
            step = train.get_or_create_global_step().assign_add(1).op
        with er.MonitoredTrainingSession(
            master,
            checkpoint_dir=str(folder),
            save_checkpoint_steps=2,
            scaffold=train.Scaffold(saver=saver(max_to_keep=10)),
            save_summaries_steps=None,
            log_step_count_steps=None,
            hooks=[train.StopAtStepHook(last_step=last)],
        ) as session:
            while not session.should_stop():
                session.run(step)


def test_a_model_directory_that_is_removed_in_mid_training_is_one_error(tmp_path):
    folder = tmp_path / "model"
    train_to(folder, 2)

    def train_on():
        with tf.Graph().as_default():
            tf1.get_variable("v", [MEGABYTE // 4], initializer=tf1.zeros_initializer())
            step = train.get_or_create_global_step().assign_add(1).op
            with er.MonitoredTrainingSession(
                checkpoint_dir=str(folder), save_checkpoint_steps=2
            ) as session:
                folder.rename(tmp_path / "elsewhere")
                for _ in range(4):
                    session.run(step)

    with pytest.raises(CheckpointError) as raised:
        train_on()
    assert str(raised.value) == (
        f"the checkpoint '{folder}/model.ckpt-4' cannot be written: the folder "
        f"'{folder}' was deleted during training, along with its checkpoints. Restore "
        "it and start again to go on from the newest, or start again without it to "
        "train from the start"
    )
    assert not folder.exists()


class OwnSaver(train.Saver):
    """One that a program has made, of which nothing is known."""


@pytest.fixture
def limit_of_files():
    """Files of this process may have half a megabyte, as under ulimit -f."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE // 2, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("saver", [train.Saver, OwnSaver])
def test_a_limit_of_file_sizes_is_an_error_that_names_it(
    tmp_path, limit_of_files, saver
):
    with pytest.raises(CheckpointError) as raised:
        train_to(tmp_path, 100, saver=saver)
    message = str(raised.value)
    assert "cannot be written: File too large; " in message
    assert "Earlier checkpoints are unchanged" in message
    assert "ulimit -f" in message


def good_steps(folder):
    """Return the steps of good checkpoints, in which every value is the step."""
    found = []
    for each in checkpoints_in(folder):
        assert each.problem() is None
        values = tf.train.load_variable(each.prefix, "v")
        assert set(values.tolist()) == {float(each.step)}
        found.append(each.step)
    return found


@pytest.mark.parametrize(
    ("in_cluster", "saver"),
    [
        (False, train.Saver),
        (True, train.Saver),
        (True, functools.partial(train.Saver, sharded=True)),
        (False, OwnSaver),
    ],
    ids=["in the background", "in a cluster", "in shards", "by a saver of its own"],
)
def test_a_full_disk_leaves_older_checkpoints_and_no_scraps(
    small_disk, in_cluster, saver
):
    server = tf.distribute.Server.create_local_server()
    with pytest.raises(CheckpointError) as raised:
        train_to(small_disk, 100, server.target if in_cluster else "", saver)
    assert good_steps(small_disk) == [0, 2, 4]
    assert [n for n in os.listdir(small_disk) if "saving" in n or "temp" in n] == []
    message = str(raised.value)
    found = re.fullmatch(
        re.escape(f"the checkpoint '{small_disk}/model.ckpt-6' cannot be written: ")
        + r"No space left on device(?:; it needs ([\d,]+) bytes)?; ([\d,]+) bytes are free\. "
        "Earlier checkpoints .*",
        message,
    )
    assert found, message
    needed, free = (int((n or "0").replace(",", "")) for n in found.groups())
    assert free < MEGABYTE
    # What a Saver needs is not known.
    assert bool(needed) == (not in_cluster and saver is train.Saver)
    assert not needed or MEGABYTE <= needed < 2 * MEGABYTE


def test_training_goes_on_once_there_is_room(small_disk):
    with pytest.raises(CheckpointError):
        train_to(small_disk, 100)
    for path in small_disk.glob("model.ckpt-0.*"):
        path.unlink()
    train_to(small_disk, 6)
    assert good_steps(small_disk) == [2, 4, 6]


# TensorFlow's thread that writes the file ends with the error.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("in_cluster", [False, True])
def test_an_event_file_that_cannot_be_written_is_no_error_of_the_training(
    small_disk, tmp_path, caplog, in_cluster
):
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1).op
        events = tf1.summary.FileWriter(str(small_disk))
        with er.MonitoredTrainingSession(
            server.target if in_cluster else "",
            checkpoint_dir=str(tmp_path / "model"),
            save_checkpoint_steps=2,
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            [hook] = [h for h in session._hooks if isinstance(h, CheckpointHook)]
            wait_for_own()
            hook._summary_writer = events
            events.flush()
            with contextlib.suppress(OSError), open(small_disk / "full", "wb") as file:
                file.write(bytes(5 * MEGABYTE))
            for _ in range(6):
                session.run(step)
    state = train.get_checkpoint_state(str(tmp_path / "model"))
    steps = [step_of(path) for path in state.all_model_checkpoint_paths]
    assert steps == [0, 2, 4, 6]
    begun = f"the event file in '{small_disk}' cannot be written: "
    assert [line for line in caplog.messages if line.startswith(begun)]
