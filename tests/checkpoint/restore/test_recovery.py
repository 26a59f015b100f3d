"""Training goes on from the newest good checkpoint; what is damaged is kept."""

import os
import shutil

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import checkpoints_in
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.store.state_file import State, read_state, write_state
from estimator_runtime.cli.main import main
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
    "state file cut": lambda f: os.truncate(f / "checkpoint", 100),
}


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
    aside = {p.name: p.read_bytes() for p in ckpt.glob("damaged/*")}
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
        f"{data} has a wrong checksum for 'weight'. Damaged files are kept in "
        "'damaged' beside it."
    )


@pytest.mark.parametrize("damage", STATE_DAMAGE.values(), ids=STATE_DAMAGE)
def test_a_lost_state_file_is_made_again(ckpt, damage):
    damage(ckpt)
    assert train_on(ckpt, steps=0) == [30.0, 30.0, 30.0]
    assert read_state(str(ckpt)).paths == (f"{ckpt}/model.ckpt-30",)


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


def test_the_checkpoint_of_another_model_is_named_and_kept(ckpt):
    before = {name: (ckpt / name).read_bytes() for name in names(ckpt)}
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("weight", initializer=[0.0] * 7, trainable=False)
        tf.compat.v1.get_variable("zoom", initializer=0.0)
        tf.compat.v1.train.get_or_create_global_step()
        with pytest.raises(
            tf.errors.NotFoundError,
            match=r"the checkpoint has no 'zoom'; 'weight' has shape \[100\] there, \[7\] here; "
            "give",
        ) as raised:
            er.MonitoredTrainingSession(checkpoint_dir=str(ckpt))
    assert isinstance(raised.value, CheckpointError)
    assert {name: (ckpt / name).read_bytes() for name in names(ckpt)} == before


def test_values_of_another_shape_are_not_given_to_a_variable(ckpt):
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("weight", initializer=[0.0] * 7)
        tf.compat.v1.train.get_or_create_global_step()
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"Restoring from checkpoint failed.* a mismatch between .*: "
            r"'weight' has shape \[100\] there, \[7\] here; give",
        ) as raised:
            er.MonitoredTrainingSession(checkpoint_dir=str(ckpt))
    assert isinstance(raised.value, CheckpointError)


def test_a_saver_that_reshapes_may_restore_values_of_another_shape(ckpt):
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("weight", initializer=[[0.0] * 10] * 10)
        tf.compat.v1.train.get_or_create_global_step()
        saver = tf.compat.v1.train.Saver(reshape=True)
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(ckpt),
            scaffold=tf.compat.v1.train.Scaffold(saver=saver),
            save_checkpoint_secs=None,
        ) as session:
            assert session.run(weight).shape == (10, 10)


@pytest.fixture
def train_to():
    """Return a function that trains an Estimator to a step and returns its weights.

    Its attribute `trainings` counts those that were not done already.
    """

    def model_fn(features, labels, mode):
        train_to.trainings += 1
        weight = tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
        step = tf.compat.v1.train.get_global_step()
        train_op = tf.group(step.assign_add(1), weight.assign_add([1.0] * 100))
        return tf.estimator.EstimatorSpec(mode, loss=weight[0], train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors((1.0, 1.0)).repeat()

    def train_to(folder, max_steps):
        estimator = tf.estimator.Estimator(model_fn, str(folder))
        estimator.train(input_fn, max_steps=max_steps)
        return estimator.get_variable_value("weight").tolist()

    train_to.trainings = 0
    return train_to


def test_an_estimator_that_is_done_stays_done_without_a_state_file(tmp_path, train_to):
    for _ in range(2):
        assert train_to(tmp_path, 3) == [3.0] * 100
        (tmp_path / "checkpoint").unlink()
    assert train_to.trainings == 1


def test_a_damaged_result_of_a_training_that_is_done_is_trained_again(
    ckpt, caplog, train_to
):
    assert train_to(ckpt, 30) == [30.0] * 100
    flip(ckpt / DATA, 50)
    assert train_to(ckpt, 30) == [30.0] * 100
    assert train_to.trainings == 1
    assert "has a wrong checksum for 'weight'" in caplog.text
    assert (ckpt / "damaged" / DATA).exists()


def test_a_checkpoint_is_not_set_aside_for_a_vocabulary_that_is_damaged(tmp_path):
    words = tmp_path / "words.tfrecord"
    with tf.io.TFRecordWriter(str(words)) as writer:
        writer.write(b"first")
    folder = tmp_path / "model"

    def train():
        with tf.Graph().as_default():
            data = tf.data.TFRecordDataset(str(words))
            table = tf.data.experimental.index_table_from_dataset(data)
            found = table.lookup(tf.constant("first"))
            add = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
            with er.MonitoredTrainingSession(checkpoint_dir=str(folder)) as session:
                return session.run([add, found])

    assert train() == [1, 0]
    before = names(folder)
    whole = words.read_bytes()
    flip(words, 14)
    with pytest.raises(tf.errors.DataLossError, match="InitializeTableFromDataset"):
        train()
    assert names(folder) == before
    words.write_bytes(whole)
    assert train() == [2, 0]


def save_on(folder, last, saver=None):
    """Train on to step `last`, saving each step; give the step that was restored."""
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
        step = tf.compat.v1.train.get_or_create_global_step()
        add = step.assign_add(1).op
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            save_checkpoint_steps=1,
            scaffold=tf.compat.v1.train.Scaffold(saver=saver and saver()),
        ) as session:
            restored = session.run_step_fn(
                lambda step_context: step_context.session.run(step)
            )
            for _ in range(last - restored):
                session.run(add)
    return restored


def keeping(newest, **more):
    """Return what makes a Saver that keeps so many."""
    return lambda: tf.compat.v1.train.Saver(
        max_to_keep=newest, save_relative_paths=True, **more
    )


def steps(folder):
    return [each.step for each in checkpoints_in(folder) if each.problem() is None]


def name_in_state(folder, *numbers, **more):
    paths = tuple(str(folder / f"model.ckpt-{number}") for number in numbers)
    write_state(str(folder), State(latest=paths[-1], paths=paths, **more))


def test_what_was_to_stay_for_good_stays_when_the_newest_is_damaged(ckpt):
    name_in_state(ckpt, 20, 30, last_preserved=1234.5)
    truncate(ckpt / DATA)
    assert recovery.recover(str(ckpt)).step == 20
    state = read_state(str(ckpt))
    assert state.paths == (f"{ckpt}/model.ckpt-20",)
    assert state.last_preserved == 1234.5
    name_in_state(ckpt, 20)
    assert save_on(ckpt, 23, keeping(1)) == 20
    assert steps(ckpt) == [10, 23]


def test_what_was_to_stay_for_good_stays_when_training_goes_on_from_it(ckpt):
    name_in_state(ckpt, 20, 30, last_preserved=1234.5)
    for number in (20, 30):
        truncate(ckpt / f"model.ckpt-{number}.data-00000-of-00001")
    assert save_on(ckpt, 13, keeping(1)) == 10
    assert steps(ckpt) == [10, 13]


@pytest.mark.parametrize("damage", STATE_DAMAGE.values(), ids=STATE_DAMAGE)
def test_with_a_lost_state_file_nothing_that_is_there_is_deleted(ckpt, damage):
    damage(ckpt)
    assert save_on(ckpt, 33, keeping(1)) == 30
    assert steps(ckpt) == [10, 20, 30, 33]


@pytest.mark.parametrize(
    "damage", [DAMAGE["index missing"], STATE_DAMAGE["state file missing"]]
)
def test_checkpoints_of_another_name_stay(ckpt, damage):
    foreign = ["other.ckpt-3.index", "other.ckpt-3.data-00000-of-00001"]
    for name in foreign:
        shutil.copy(ckpt / name.replace("other.ckpt-3", "model.ckpt-10"), ckpt / name)
    damage(ckpt)
    save_on(ckpt, 33, keeping(1))
    assert set(foreign) <= set(names(ckpt))
    assert read_state(str(ckpt)).paths == (f"{ckpt}/model.ckpt-33",)


def test_training_in_a_copy_of_a_folder_leaves_the_original_alone(tmp_path):
    # TensorFlow's default Saver writes down absolute paths.
    save_on(tmp_path / "run1", 3)
    assert read_state(str(tmp_path / "run1")).latest == f"{tmp_path}/run1/model.ckpt-3"
    text = (tmp_path / "run1" / "checkpoint").read_text()
    assert f'"{tmp_path}/run1/model.ckpt-3"' in text
    shutil.copytree(tmp_path / "run1", tmp_path / "run2")
    before = names(tmp_path / "run1")
    (tmp_path / "run1" / "model.ckpt-3.index").write_bytes(b"newer")
    assert save_on(tmp_path / "run2", 10) == 3
    assert names(tmp_path / "run1") == before
    assert steps(tmp_path / "run2") == [6, 7, 8, 9, 10]


def test_training_in_a_folder_that_was_moved_goes_on_there(tmp_path, caplog):
    save_on(tmp_path / "a", 3)
    (tmp_path / "a").rename(tmp_path / "b")
    assert save_on(tmp_path / "b", 8) == 3
    assert steps(tmp_path / "b") == [4, 5, 6, 7, 8]
    [told] = [m for m in caplog.messages if m.startswith("Training goes on from")]
    assert told == (
        f"Training goes on from {tmp_path}/b/model.ckpt-3, because the state file is "
        f"that of another folder, {tmp_path}/a."
    )


def test_a_checkpoint_elsewhere_that_the_user_has_named_is_restored_and_kept(
    ckpt, tmp_path
):
    (tmp_path / "new").mkdir()
    elsewhere = str(ckpt / "model.ckpt-20")
    state = State(latest=elsewhere, paths=(elsewhere,))
    write_state(str(tmp_path / "new"), state, relative=False)
    assert save_on(tmp_path / "new", 23, keeping(1)) == 20
    assert steps(tmp_path / "new") == [23]
    assert steps(ckpt) == [10, 20, 30]


def v1_saver(sharded=False):
    return lambda: tf.compat.v1.train.Saver(
        write_version=tf.compat.v1.train.SaverDef.V1, sharded=sharded
    )


@pytest.mark.parametrize("sharded", [False, True])
def test_training_goes_on_from_a_checkpoint_of_the_v1_format(tmp_path, sharded, capsys):
    saver = v1_saver(sharded)
    assert save_on(tmp_path, 3, saver) == 0
    assert list(tmp_path.glob("*.index")) == []
    assert recovery.recover(str(tmp_path)).step == 3
    assert main(["checkpoints", str(tmp_path), "--verify"]) == 0
    assert "  good: its data was not read; a restart" in capsys.readouterr().out
    assert save_on(tmp_path, 5, saver) == 3
    (tmp_path / "checkpoint").unlink()
    assert save_on(tmp_path, 7, saver) == 5
    assert save_on(tmp_path, 9, keeping(5)) == 7


def test_a_foreign_file_with_the_name_of_an_index_is_left_alone(ckpt):
    (ckpt / "corpus-99999.index").write_text("words")
    truncate(ckpt / DATA)
    assert recovery.recover(str(ckpt)).step == 20
    (ckpt / "checkpoint").unlink()
    assert recovery.recover(str(ckpt)).step == 20
    assert (ckpt / "corpus-99999.index").read_text() == "words"


@pytest.mark.parametrize("has_state", [True, False])
def test_a_checkpoint_of_another_name_is_not_what_training_goes_on_from(
    ckpt, has_state
):
    for path in ckpt.glob("model.ckpt-10.*"):
        path.rename(ckpt / path.name.replace("model.ckpt-10", "bert.ckpt-1000000"))
    truncate(ckpt / DATA)
    if not has_state:
        (ckpt / "checkpoint").unlink()
    assert recovery.recover(str(ckpt)).step == 20
    assert (ckpt / "bert.ckpt-1000000.index").exists()


def test_a_folder_where_no_save_has_been_completed_is_trained_from_the_start(tmp_path):
    (tmp_path / "model.ckpt-0.data-00000-of-00001").write_bytes(b"half")
    (tmp_path / "corpus-99999.index").write_text("words")
    assert recovery.recover(str(tmp_path)) is None
    assert save_on(tmp_path, 2) == 0
    assert steps(tmp_path) == [0, 1, 2]


def test_a_folder_that_cannot_be_read_is_one_error_also_when_going_back(ckpt):
    (ckpt / "damaged").write_text("a file")
    with pytest.raises(CheckpointError, match=r"cannot be checked: .*damaged"):
        recovery.set_aside_latest(str(ckpt), "it is damaged")


def test_a_damaged_checkpoint_of_the_v1_format_is_set_aside(tmp_path):
    save_on(tmp_path, 3, v1_saver())
    truncate(tmp_path / "model.ckpt-3")
    assert save_on(tmp_path, 4, v1_saver()) == 2
    assert names(tmp_path / "damaged") == ["model.ckpt-3", "model.ckpt-3.meta"]
