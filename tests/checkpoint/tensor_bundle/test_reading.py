"""A read that fails is tried again, and is never taken for damage."""

import errno
import json
import os
import threading
import time
import types

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import Checkpoint
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.restore.session_creator import VerifiedSessionCreator
from estimator_runtime.checkpoint.store.state_file import read_state
from estimator_runtime.checkpoint.tensor_bundle import checksums
from estimator_runtime.checkpoint.tensor_bundle.reading import UnreadableError
from estimator_runtime.cli.main import main
from estimator_runtime.distributed import coordination

er.install()

INDEX, DATA = "model.ckpt-30.index", "model.ckpt-30.data-00000-of-00001"
ERRORS = ("EIO", "ESTALE", "EMFILE", "ENOMEM", "ETIMEDOUT", "EINTR", "EACCES")


class FakeDisk:
    """Answers calls for one file with an error, a number of times."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self.pauses = []
        monkeypatch.setattr(time, "sleep", self._pause)

    def _pause(self, secs, sleep=time.sleep):
        if threading.current_thread() is threading.main_thread():
            self.pauses.append(secs)
        else:
            sleep(secs)

    def fail(self, call, path, number, times=1000):
        """Fail `call`: "open", "read", or "stat"."""
        left = [times]

        def check(shown):
            if os.path.realpath(shown) == os.path.realpath(path) and left[0]:
                left[0] -= 1
                raise OSError(number, os.strerror(number))

        def patched(owner, name, path_of):
            original = getattr(owner, name)

            def wrapped(*args, **kwargs):
                check(path_of(args[0]))
                return original(*args, **kwargs)

            self._monkeypatch.setattr(owner, name, wrapped)

        def of_descriptor(descriptor):
            return os.readlink(f"/proc/self/fd/{descriptor}")

        if call == "read":  # after it was opened and looked at
            patched(os, "fdopen", of_descriptor)
        elif call == "stat":
            patched(os, "fstat", of_descriptor)
        else:
            patched(os, "open", os.fspath)


@pytest.fixture
def disk(monkeypatch):
    return FakeDisk(monkeypatch)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("events")
    }


def restored(folder):
    """Make a session; give the global step and a weight that it has."""
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
        step = tf.compat.v1.train.get_or_create_global_step()
        values = [step.value(), weight[0]]
        creator = VerifiedSessionCreator(checkpoint_dir=str(folder))
        with creator.create_session() as session:
            return [float(each) for each in session.run(values)]


def estimator_checks(folder):
    assert tf.estimator.Estimator  # which uses that module
    from estimator_runtime.estimator import checkpoints

    config = types.SimpleNamespace(is_chief=True)
    estimator = types.SimpleNamespace(model_dir=str(folder), config=config)
    checkpoints.verify_newest(estimator, max_steps=30)


CHECKS = {
    "at the start": lambda folder: recovery.recover(str(folder)),
    "by a gang's chief": lambda folder: coordination._check_values(str(folder)),
    "by an Estimator that is done": estimator_checks,
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    "check, call, name",
    [
        (check, call, name)
        for check in CHECKS
        for call in ("open", "stat", "read")
        for name in (INDEX, DATA)
        # At the start TensorFlow reads the data.
        if (check, call, name) != ("at the start", "read", DATA)
    ],
)
def test_a_checkpoint_that_cannot_be_read_stays_and_ends_the_start(
    ckpt, disk, error, check, call, name
):
    before = content(ckpt)
    number = getattr(errno, error)
    disk.fail(call, ckpt / name, number)
    with pytest.raises(UnreadableError) as raised:
        CHECKS[check](ckpt)
    reason = f"{str(ckpt / name)!r} cannot be read: {os.strerror(number)}. "
    assert str(raised.value).startswith(reason)
    assert str(raised.value).endswith(", then start again")
    assert disk.pauses == [0.05, 0.2, 0.5]
    assert content(ckpt) == before


@pytest.mark.parametrize("how", ["by its size", "by its values"])
def test_an_older_checkpoint_that_cannot_be_read_stays_named(ckpt, disk, how):
    disk.fail("open", ckpt / INDEX.replace("30", "10"), errno.EIO)
    if how == "by its size":
        (ckpt / DATA).write_bytes(b"half")
        assert recovery.recover(str(ckpt)).step == 20
    else:
        assert recovery.set_aside_latest(str(ckpt), "is damaged").step == 20
    paths = tuple(f"{ckpt}/model.ckpt-{step}" for step in (10, 20))
    assert read_state(str(ckpt)).paths == paths
    assert (ckpt / "damaged" / DATA).exists()
    assert recovery.recover(str(ckpt)).step == 20


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", [INDEX, DATA])
@pytest.mark.parametrize("call", ["open", "stat", "read"])
def test_a_checkpoint_that_can_be_read_at_the_second_attempt_is_used(
    ckpt, disk, error, check, call, name
):
    before = content(ckpt)
    disk.fail(call, ckpt / name, getattr(errno, error), times=1)
    CHECKS[check](ckpt)
    assert restored(ckpt) == [30.0, 30.0]
    assert content(ckpt) == before


def test_a_folder_that_cannot_be_listed_is_not_one_without_files(
    ckpt, disk, monkeypatch
):
    def fail(path="."):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(OSError, match="Input/output error"):
        Checkpoint.at(str(ckpt / "model.ckpt-30"))
    assert disk.pauses == [0.05, 0.2, 0.5]


def test_a_file_server_that_forgets_a_file_for_a_moment_has_not_lost_it(ckpt, disk):
    disk.fail("open", ckpt / DATA, errno.ENOENT, times=3)
    assert Checkpoint.at(str(ckpt / "model.ckpt-30")).problem() is None
    assert disk.pauses == [0.05, 0.2, 0.5]


def test_a_file_that_is_gone_is_missing_at_once(ckpt, disk):
    (ckpt / DATA).unlink()
    assert Checkpoint.at(str(ckpt / "model.ckpt-30")).problem() == f"{DATA} is missing"
    assert checksums.problem(str(ckpt / "model.ckpt-30")) == f"{DATA} is missing"
    assert disk.pauses == []


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize("name", [INDEX, DATA])
def test_what_is_no_file_is_damage(ckpt, make, name):
    (ckpt / name).unlink()
    make(ckpt / name)
    assert restored(ckpt) == [20.0, 20.0]
    assert name in os.listdir(ckpt / "damaged")


@pytest.mark.parametrize(
    "kind",
    [
        tf.errors.AbortedError,
        tf.errors.DataLossError,
        tf.errors.ResourceExhaustedError,
        tf.errors.UnknownError,
    ],
)
@pytest.mark.parametrize("times, is_used", [(2, True), (3, False)])
def test_a_restore_that_could_not_read_is_tried_again_where_all_is_good(
    ckpt, monkeypatch, kind, times, is_used
):
    creator = tf.compat.v1.train.ChiefSessionCreator
    original, left = creator.create_session, [times]

    def fail(self):
        session = original(self)
        [op] = [
            each for each in session.graph.get_operations() if each.type == "RestoreV2"
        ]
        if left[0]:
            left[0] -= 1
            session.close()
            raise kind(None, op, "model.ckpt-30.index; Input/output error")
        return session

    monkeypatch.setattr(creator, "create_session", fail)
    before = content(ckpt)
    if is_used:
        assert restored(ckpt) == [30.0, 30.0]
    else:
        with pytest.raises(kind, match="Input/output error"):
            restored(ckpt)
    assert content(ckpt) == before


def test_the_list_says_what_cannot_be_read_and_that_a_restart_stops(ckpt, disk, capsys):
    disk.fail("open", ckpt / INDEX, errno.EIO)
    assert main(["checkpoints", str(ckpt), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    reason = f"{INDEX} cannot be read: Input/output error"
    assert [(each["state"], each["reason"]) for each in shown["checkpoints"]] == [
        ("good", None),
        ("good", None),
        ("unreadable", reason),
    ]
    assert shown["restart"] is None
    assert main(["checkpoints", str(ckpt)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].endswith(f"  unreadable: {reason}")
    assert lines[-1] == (
        "no checkpoint can be used: a restart would stop with an error"
    )
