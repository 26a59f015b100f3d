"""A step that is saved again keeps its old checkpoint until the new one is there."""

import errno
import os
import shutil

import pytest
import tensorflow as tf

from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.save.target import SaverTarget
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.store.series import Series
from estimator_runtime.checkpoint.store.state_file import State, read_state, write_state
from estimator_runtime.config.paths import step_of
from estimator_runtime.errors import CheckpointError

train = tf.compat.v1.train
CALLS = ("mkdir", "rename", "replace", "unlink", "fsync", "rmdir")


class Killed(BaseException):
    """Stands for a process that ends: no call of it changes the disk any more."""


class Disk:
    """Counts the calls that change the disk, and makes some of them fail."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch

    def run(self, function, fails=lambda number: None):
        """Run a function; return (names of its calls, what it raised or None)."""
        calls = []

        def wrap(name):
            original = getattr(os, name)

            def call(*args, **kwargs):
                calls.append(name)
                error = fails(len(calls) - 1)
                if error is not None:
                    raise error
                return original(*args, **kwargs)

            patched.setattr(os, name, call)

        with self._monkeypatch.context() as patched:
            for name in CALLS:
                wrap(name)
            try:
                function()
            except (Killed, CheckpointError) as error:
                return calls, error
        return calls, None


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def again(ckpt):
    """Return a function that saves step 20 again, with the values of step 30.

    The newest checkpoint is that of step 20 then.
    """
    for path in ckpt.glob("model.ckpt-30.*"):
        path.rename(ckpt / path.name.replace("model.ckpt-30", "new"))

    def write(prefix):
        for path in ckpt.glob("new.*"):
            shutil.copy(path, f"{prefix}{path.suffix}")

    with tf.Graph().as_default():
        tf.compat.v1.get_variable("weight", initializer=0.0)
        saver = train.Saver(max_to_keep=5, save_relative_paths=True)
    prefix = str(ckpt / "model.ckpt")
    saver.set_last_checkpoints_with_time(
        [(f"{prefix}-{n}", float(n)) for n in (10, 20)]
    )
    write_state(
        str(ckpt),
        State(latest=f"{prefix}-20", paths=(f"{prefix}-10", f"{prefix}-20")),
    )
    series = Series(saver, prefix, now=lambda: 1.0)
    return lambda: series.add(20, write, 4)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def value(folder):
    """Return what is in the checkpoint of step 20: 20 in the old one, 30 in the new."""
    return set(tf.train.load_variable(str(folder / "model.ckpt-20"), "weight").tolist())


def end(folder):
    """Make what is half done belong to a process that has ended."""
    for path in folder.glob(".*"):
        locks.unlock_folder(str(path))


def test_one_error_at_any_call_leaves_all_as_it_was(ckpt, again, disk):
    before = content(ckpt)
    calls, error = disk.run(again)
    assert error is None and {"rename", "replace", "fsync", "mkdir"} <= {*calls}
    # From its state file on the new one is complete; what goes then is the old one.
    last = max(number for number, name in enumerate(calls) if name == "replace")
    for number in range(last + 1):
        restore(ckpt, before)
        fault = OSError(errno.EIO, os.strerror(errno.EIO))
        faults = {number: fault}
        _, error = disk.run(again, faults.get)
        assert isinstance(error, CheckpointError), (number, calls[number])
        assert "Input/output error" in str(error)
        assert content(ckpt) == before, (number, calls[number])
        assert [p.name for p in ckpt.iterdir() if p.is_dir()] == []


def restore(folder, before):
    shutil.rmtree(folder)
    for name, data in before.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.mark.parametrize("ends_by", ["a kill", "a disk that fails for good"])
def test_at_any_call_the_old_or_the_new_one_survives(ckpt, again, disk, ends_by):
    before = content(ckpt)
    calls, _ = disk.run(again)
    found = []
    for number in range(len(calls)):
        restore(ckpt, before)

        def fail(at, number=number):
            if at < number:
                return None
            is_kill = ends_by == "a kill"
            return Killed() if is_kill else OSError(errno.EIO, os.strerror(errno.EIO))

        disk.run(again, fail)
        end(ckpt)
        assert recovery.recover(str(ckpt)).step == 20, (number, calls[number])
        found.append(value(ckpt).pop())
        state = read_state(str(ckpt))
        assert [step_of(path) for path in state.paths] == [10, 20]
        assert [name for name in os.listdir(ckpt) if name.startswith(".")] == []
        assert not (ckpt / "damaged").exists()
    assert found == sorted(found) and {*found} == {20.0, 30.0}


def test_at_any_call_of_the_restart_the_old_or_the_new_one_survives(ckpt, again, disk):
    before = content(ckpt)
    calls, _ = disk.run(again)
    for number in range(calls.index("replace") + 1):
        restore(ckpt, before)
        disk.run(again, lambda at, number=number: Killed() if at >= number else None)
        end(ckpt)
        half_done = content(ckpt)
        count, _ = disk.run(lambda: recovery.recover(str(ckpt)))
        for second in range(len(count)):
            restore(ckpt, half_done)
            disk.run(
                lambda: recovery.recover(str(ckpt)),
                lambda at, n=second: Killed() if at >= n else None,
            )
            assert recovery.recover(str(ckpt)).step == 20, (number, second)
            assert value(ckpt) in ({20.0}, {30.0})


@pytest.mark.parametrize("saves_by", ["a snapshot", "its Saver"])
def test_a_run_that_dies_while_it_saves_a_step_again_does_not_go_on_from_the_old_one(
    ckpt, disk, saves_by
):
    """Go back from step 20 to 10, and die while saving another step 20."""
    for path in ckpt.glob("model.ckpt-30.*"):
        path.rename(ckpt / path.name.replace("model.ckpt-30", "new"))
    prefix = str(ckpt / "model.ckpt")
    write_state(str(ckpt), State(latest=f"{prefix}-10", paths=(f"{prefix}-10",)))
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("weight", initializer=0.0)
        saver = train.Saver(max_to_keep=5, save_relative_paths=True)

    def write(prefix):
        for path in sorted(ckpt.glob("new.*")):  # the index comes after the data
            part = shutil.copy(path, f"{prefix}{path.suffix}.part")
            os.rename(part, f"{prefix}{path.suffix}")

    def save():
        series = Series(saver, prefix, now=lambda: 1.0)
        if saves_by == "a snapshot":
            series.add(20, write, 4)
        else:
            series.add_saved(20, lambda: write(f"{prefix}-20"))

    before = content(ckpt)
    calls, _ = disk.run(save)
    found = set()
    for number in range(len(calls)):
        restore(ckpt, before)
        disk.run(save, lambda at, n=number: Killed() if at >= n else None)
        end(ckpt)
        step = recovery.recover(str(ckpt)).step
        # A Saver overwrites the old one in place.
        found.add((step, value(ckpt).pop() if saves_by == "a snapshot" else None))
    if saves_by == "a snapshot":
        assert found == {(10, 20.0), (20, 30.0)}
    else:
        assert found == {(10, None), (20, None)}


class FullDisk(train.Saver):
    def save(self, *_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


def test_a_saver_that_finds_the_disk_full_leaves_the_old_one_of_that_step(ckpt):
    """The state file does not name it, as where training has gone back before it."""
    prefix = str(ckpt / "model.ckpt")
    state = State(latest=f"{prefix}-10", paths=(f"{prefix}-10",))
    write_state(str(ckpt), state)
    before = content(ckpt)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("weight", initializer=0.0)
        saver = FullDisk()
        of_its_own = SaverTarget(session, saver, prefix, has_graph=False)
        series = Series(saver, prefix)
        for save in (
            lambda: series.add_saved(20, lambda: saver.save(session, prefix)),
            lambda: of_its_own.save(20),
        ):
            with pytest.raises(CheckpointError, match="No space left"):
                save()
            assert content(ckpt) == before
