"""Training goes on from the newest good checkpoint; what is damaged is kept."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint import commit, files, lease, recovery
from estimator_runtime.checkpoint.state import State, read_state, write_state
from estimator_runtime.errors import CheckpointError

er.install()

INDEX, DATA = "model.ckpt-30.index", "model.ckpt-30.data-00000-of-00001"


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE = {
    "data truncated": lambda f: truncate(f / DATA),
    "data missing": lambda f: (f / DATA).unlink(),
    "data empty": lambda f: (f / DATA).write_bytes(b""),
    "data has a flipped bit": lambda f: flip(f / DATA, 8),
    "index truncated": lambda f: truncate(f / INDEX),
    "index missing": lambda f: (f / INDEX).unlink(),
    "index empty": lambda f: (f / INDEX).write_bytes(b""),
    "index has a flipped bit": lambda f: flip(f / INDEX, 20),
    "index is another file": lambda f: (f / INDEX).write_text("no table\n" * 50),
    "index is another's": lambda f: shutil.copy(f / "model.ckpt-20.index", f / INDEX),
    "data is another's": lambda f: shutil.copy(
        f / "model.ckpt-20.data-00000-of-00001", f / DATA
    ),
    "all files missing": lambda f: [p.unlink() for p in f.glob("model.ckpt-30.*")],
}
STATE_DAMAGE = {
    "state file missing": lambda f: (f / "checkpoint").unlink(),
    "state file empty": lambda f: (f / "checkpoint").write_bytes(b""),
    "state file garbage": lambda f: (f / "checkpoint").write_bytes(b"\0\xff garbage"),
    "state file cut": lambda f: truncate(f / "checkpoint"),
}
SCRIPT = """
import sys
import tensorflow as tf

v1 = tf.compat.v1

def model_fn(features, labels, mode):
    weight = v1.get_variable("weight", initializer=[0.0] * 100, use_resource=True)
    step = v1.train.get_global_step()
    train_op = tf.group(step.assign_add(1), weight.assign_add([1.0] * 100))
    return tf.estimator.EstimatorSpec(mode, loss=weight[0], train_op=train_op)

class Restored(v1.train.SessionRunHook):
    def begin(self):
        [weight] = [v for v in v1.global_variables() if v.name == "weight:0"]
        self.values = [v1.train.get_global_step(), weight[0], weight[99]]

    def after_create_session(self, session, coord):
        print("restored", *session.run(self.values))

estimator = tf.estimator.Estimator(model_fn, sys.argv[1])
data = lambda: tf.data.Dataset.from_tensors((1.0, 1.0)).repeat()
estimator.train(data, max_steps=32, hooks=[Restored()])
"""


def train_on(folder, steps=1):
    """Train `steps` steps more; give (global step, weight) as they were restored."""
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
        step = tf.compat.v1.train.get_or_create_global_step()
        add, read = step.assign_add(1).op, [step.value(), weight[0], weight[99]]
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(folder), save_checkpoint_steps=1000
        ) as session:
            restored = session.run_step_fn(
                lambda step_context: step_context.session.run(read)
            )
            for _ in range(steps):
                session.run(add)
    return [float(value) for value in restored]


def names(folder):
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("events"))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_restored(
    ckpt, caplog, damage
):
    damage(ckpt)
    kept = {p.name: p.read_bytes() for p in ckpt.glob("model.ckpt-30.*")}
    assert train_on(ckpt) == [20.0, 20.0, 20.0]
    aside = {p.name: p.read_bytes() for p in (ckpt / "damaged").iterdir()}
    assert aside == kept
    told = [m for m in caplog.messages if m.startswith("Training goes on from")]
    assert len(told) == 1
    assert "model.ckpt-20" in told[0] and "model.ckpt-30" in told[0]


def test_the_warning_names_the_file_and_the_value_that_are_damaged(ckpt, caplog):
    data = "model.ckpt-30.data-00000-of-00001"
    content = bytearray((ckpt / data).read_bytes())
    content[100] ^= 1
    (ckpt / data).write_bytes(content)
    train_on(ckpt)
    (told,) = [m for m in caplog.messages if m.startswith("Training goes on from")]
    assert told == (
        f"Training goes on from {ckpt}/model.ckpt-20, because {ckpt}/model.ckpt-30: "
        f"{data} has a wrong checksum for 'weight'. What is damaged is kept in "
        "'damaged' beside it."
    )


@pytest.mark.parametrize("damage", STATE_DAMAGE.values(), ids=STATE_DAMAGE)
def test_a_lost_state_file_is_made_again(ckpt, damage):
    damage(ckpt)
    assert train_on(ckpt, steps=0) == [30.0, 30.0, 30.0]
    restored = [f"{ckpt}/model.ckpt-{step}" for step in (10, 20, 30)]
    assert list(read_state(str(ckpt)).paths) == restored


@pytest.mark.parametrize(
    "damage, step",
    [(damage, 20) for damage in DAMAGE.values()]
    + [(damage, 30) for damage in STATE_DAMAGE.values()],
    ids=[*DAMAGE, *STATE_DAMAGE],
)
def test_a_script_that_is_started_again_goes_on_from_the_newest_good_checkpoint(
    ckpt, tmp_path, damage, step
):
    damage(ckpt)
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "estimator_runtime", "run", "train.py", str(ckpt)],
        capture_output=True,
        cwd=tmp_path,
        text=True,
        timeout=120,
    )
    restored = f"restored {step} {step}.0 {step}.0\n"
    assert (done.returncode, done.stdout) == (0, restored), done.stderr
    reader = tf.train.load_checkpoint(str(ckpt))
    assert reader.get_tensor("global_step") == 32
    assert set(reader.get_tensor("weight")) == {32.0}
    assert (ckpt / "model.ckpt-10.index").is_file()


def test_training_does_not_start_over_where_no_checkpoint_is_good(ckpt):
    for path in ckpt.glob("*.data-*"):
        path.unlink()
    (ckpt / "checkpoint").unlink()
    before = names(ckpt)
    with pytest.raises(CheckpointError, match=r"none of the checkpoints in .* can be"):
        train_on(ckpt)
    assert names(ckpt) == before


def test_an_older_checkpoint_that_the_user_has_named_is_used(ckpt):
    old = str(ckpt / "model.ckpt-10")
    write_state(str(ckpt), State(latest=old, paths=(old,)))
    before = names(ckpt)
    assert recovery.recover(str(ckpt)).step == 10
    assert names(ckpt) == before


def test_a_folder_may_be_moved_with_a_state_file_of_absolute_paths(ckpt):
    old = "/no/such/folder/model.ckpt-20"
    write_state(str(ckpt), State(latest=old, paths=(old,)), relative=False)
    assert recovery.recover(str(ckpt)).prefix == str(ckpt / "model.ckpt-20")


def test_the_checkpoint_of_another_model_is_named_and_kept(ckpt):
    before = {name: (ckpt / name).read_bytes() for name in names(ckpt)}
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("weight", initializer=[0.0] * 7)
        tf.compat.v1.get_variable("bias", initializer=0.0)
        tf.compat.v1.train.get_or_create_global_step()
        with pytest.raises(
            CheckpointError,
            match=r"'weight' has shape \[100\] there, \[7\] here; it has no 'bias'",
        ):
            er.MonitoredTrainingSession(checkpoint_dir=str(ckpt))
    assert {name: (ckpt / name).read_bytes() for name in names(ckpt)} == before


def test_an_estimator_that_is_done_stays_done_without_a_state_file(tmp_path):
    def model_fn(features, labels, mode):
        weight = tf.compat.v1.get_variable("weight", initializer=1.0)
        step = tf.compat.v1.train.get_global_step()
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(
            weight * features, step
        )
        return tf.estimator.EstimatorSpec(mode, loss=weight, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors((1.0, 1.0)).repeat()

    for _ in range(2):
        estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
        estimator.train(input_fn, max_steps=3)
        assert estimator.get_variable_value("global_step") == 3
        (tmp_path / "checkpoint").unlink()


def test_a_damaged_result_of_a_training_that_is_done_is_trained_again(ckpt, caplog):
    def model_fn(features, labels, mode):
        weight = tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
        step = tf.compat.v1.train.get_global_step()
        train_op = tf.group(step.assign_add(1), weight.assign_add([1.0] * 100))
        return tf.estimator.EstimatorSpec(mode, loss=weight[0], train_op=train_op)

    def train():
        estimator = tf.estimator.Estimator(model_fn, str(ckpt))
        estimator.train(
            lambda: tf.data.Dataset.from_tensors((1.0, 1.0)).repeat(), max_steps=30
        )
        return estimator.get_variable_value("weight").tolist()

    assert train() == [30.0] * 100
    flip(ckpt / DATA, 50)
    assert train() == [30.0] * 100
    assert "has a wrong checksum for 'weight'" in caplog.text
    assert (ckpt / "damaged" / DATA).exists()


def leave_behind(folder, name, content=b"half"):
    path = folder / name
    path.mkdir()
    (path / "model.ckpt-40.index").write_bytes(content)
    return path


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=60)
    return process.pid


def test_what_a_dead_run_has_left_is_removed(ckpt):
    name = f".model.ckpt-40.saving-{dead_pid()}-{socket.gethostname()}"
    leave_behind(ckpt, name)
    (ckpt / "model.ckpt-40.data-00000-of-00001").write_bytes(b"half")
    before = [n for n in names(ckpt) if "-40" not in n]
    assert recovery.recover(str(ckpt)).step == 30
    assert names(ckpt) == before


def died_before_deleting(folder, *steps):
    """Leave what a run does that died when the checkpoint of step 30 was named."""
    path = folder / f".model.ckpt-30.saving-{dead_pid()}-{socket.gethostname()}"
    path.mkdir()
    commit.leave_note(path, [str(folder / f"model.ckpt-{step}") for step in steps])
    newest = str(folder / "model.ckpt-30")
    write_state(str(folder), State(latest=newest, paths=(newest,)))
    return path


def test_what_a_dead_run_was_to_delete_goes_when_its_reader_has_left(ckpt):
    left = died_before_deleting(ckpt, 10, 20)
    with lease.reading(str(ckpt / "model.ckpt-10")) as is_there:
        assert is_there
        for _ in range(2):
            assert recovery.recover(str(ckpt)).step == 30
            assert [each.step for each in files.find(ckpt)] == [10, 30]
        commit.delete_late(str(ckpt))
        assert [each.step for each in files.find(ckpt)] == [10, 30]
    assert left.exists()
    assert recovery.recover(str(ckpt)).step == 30
    assert [each.step for each in files.find(ckpt)] == [30]
    assert not left.exists()


def test_a_training_deletes_it_with_its_next_save(ckpt):
    left = died_before_deleting(ckpt, 10)
    with tf.Graph().as_default(), contextlib.ExitStack() as reader:
        reader.enter_context(lease.reading(str(ckpt / "model.ckpt-10")))
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
    with lease.reading(str(ckpt / "model.ckpt-10")):
        recovery.recover(str(ckpt))
    paths = tuple(str(ckpt / f"model.ckpt-{step}") for step in (10, 30))
    write_state(str(ckpt), State(latest=paths[-1], paths=paths))
    commit.delete_late(str(ckpt))
    assert [each.step for each in files.find(ckpt)] == [10, 20, 30]
    assert not left.exists()


def test_a_checkpoint_that_was_complete_when_its_run_died_is_used(ckpt):
    (ckpt / f".model.ckpt-30.saving-{dead_pid()}-{socket.gethostname()}").mkdir()
    paths = tuple(str(ckpt / f"model.ckpt-{step}") for step in (10, 20))
    write_state(str(ckpt), State(latest=paths[-1], paths=paths))
    assert recovery.recover(str(ckpt)).step == 30
    assert [files.step_of(p) for p in read_state(str(ckpt)).paths] == [10, 20, 30]


def test_what_a_living_process_writes_is_left_alone(ckpt):
    owner = os.getppid()
    path = leave_behind(ckpt, f".model.ckpt-40.saving-{owner}-{socket.gethostname()}")
    stock = leave_behind(ckpt, "model.ckpt-40_temp")
    other = leave_behind(ckpt, "notes_temp")
    recovery.recover(str(ckpt))
    assert path.is_dir() and stock.is_dir() and other.is_dir()


def test_what_tensorflow_has_left_is_removed_once_it_is_old(ckpt):
    stock = leave_behind(ckpt, "model.ckpt-40_temp")
    other = leave_behind(ckpt, "notes_temp")
    for path in (stock, other, stock / "model.ckpt-40.index"):
        os.utime(path, (1, 1))
    recovery.recover(str(ckpt))
    assert (stock.exists(), other.is_dir()) == (False, True)


def test_recovery_needs_no_tensorflow():
    program = (
        "import json, sys; from estimator_runtime.checkpoint import recovery; "
        "print(json.dumps('tensorflow' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout) is False
