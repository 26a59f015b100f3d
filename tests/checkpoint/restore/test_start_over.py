"""A session that restored nothing beside a good checkpoint is refused; others are not."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import checkpoints_in
from estimator_runtime.errors import CheckpointError

er.install()

tf1 = tf.compat.v1
UNREADABLE = "model_checkpoint_path: model.ckpt-30"  # TensorFlow takes it for no file


def first_step(folder, scaffold=None):
    """Begin a training that does not save; return the step that it begins with."""
    with tf.Graph().as_default():
        tf1.get_variable("weight", initializer=[0.0] * 100)
        step = tf1.train.get_or_create_global_step()
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            scaffold=scaffold and scaffold(),
            save_checkpoint_secs=None,
            save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:
            return int(session.run(step))


def test_a_session_that_restored_nothing_is_refused_before_it_is_initialized(
    ckpt, unrecovered, monkeypatch
):
    closed = []
    close = tf1.Session.close
    monkeypatch.setattr(
        tf1.Session, "close", lambda self: (closed.append(self), close(self))
    )
    unrecovered()
    (ckpt / "checkpoint").write_text(UNREADABLE)
    before = {path: path.read_bytes() for path in ckpt.iterdir()}
    initialized = []
    with pytest.raises(CheckpointError) as raised:
        first_step(
            ckpt, lambda: tf1.train.Scaffold(init_fn=lambda *_: initialized.append(1))
        )
    assert str(raised.value) == (
        f"training would start over in {str(ckpt)!r}, although {ckpt}/model.ckpt-30 is "
        "good: TensorFlow found no checkpoint to restore there (the state file cannot "
        f"be read by TensorFlow (1:24 : {UNREADABLE!r}: Expected string but found: "
        "'model')) and was about to initialize the model. To resume from it, replace "
        "the contents of 'checkpoint' in that folder with the line "
        '`model_checkpoint_path: "model.ckpt-30"`; to train from the start, give an '
        "empty folder"
    )
    assert (len(closed), initialized) == (1, [])
    assert {path: path.read_bytes() for path in ckpt.iterdir()} == before


@pytest.mark.parametrize("is_recovered", [True, False])
def test_a_saver_of_the_programs_own_restores(ckpt, is_recovered, unrecovered):
    if not is_recovered:
        unrecovered()

    def scaffold():
        saver = tf1.train.Saver(tf1.global_variables(), name="own")
        return tf1.train.Scaffold(saver=saver, init_fn=lambda *_: None)

    assert first_step(ckpt, scaffold) == 30


def model_with_saver():
    tf1.get_variable("weight", initializer=[0.0] * 100)
    tf1.train.create_global_step()
    return tf1.train.Saver()


def by_creator(folder, initialize):
    scaffold = tf1.train.Scaffold(
        saver=model_with_saver(), init_fn=lambda _, session: initialize(session)
    )
    return tf1.train.ChiefSessionCreator(
        scaffold, checkpoint_dir=str(folder)
    ).create_session()


def by_supervisor(folder, initialize):
    supervisor = tf1.train.Supervisor(
        logdir=str(folder), saver=model_with_saver(), init_fn=initialize
    )
    return supervisor.prepare_or_wait_for_session(start_standard_services=False)


@pytest.mark.parametrize("prepare", [by_creator, by_supervisor])
@pytest.mark.parametrize("name", ["pretrained", "model.ckpt"])
def test_only_checkpoints_of_the_usual_name_are_refused_without_a_state_file(
    ckpt, name, prepare
):
    (ckpt / "checkpoint").rename(ckpt / "checkpoint_ema")
    for path in ckpt.glob("model.ckpt-*"):
        path.rename(str(path).replace("model.ckpt", name))
    initialized = []
    with tf.Graph().as_default():
        if name == "model.ckpt":
            with pytest.raises(CheckpointError, match=r"/model\.ckpt-30 is good"):
                prepare(ckpt, initialized.append)
        else:
            prepare(ckpt, initialized.append).close()
    assert len(initialized) == (name != "model.ckpt")


def test_a_session_manager_that_initializes_nothing_answers_as_it_does(ckpt):
    (ckpt / "checkpoint").write_text(UNREADABLE)
    with tf.Graph().as_default():
        session, is_restored = tf1.train.SessionManager().recover_session(
            "", saver=model_with_saver(), checkpoint_dir=str(ckpt)
        )
        session.close()
    assert not is_restored


class WithoutSaver(tf1.train.Scaffold):
    @property
    def saver(self):
        return None


def test_a_scaffold_without_a_saver_restores_nothing_as_it_asks_for(ckpt):
    assert first_step(ckpt, WithoutSaver) == 0


def test_a_folder_without_a_good_checkpoint_is_trained_from_the_start(
    ckpt, tmp_path, unrecovered
):
    assert first_step(tmp_path / "new") == 0
    unrecovered()
    (ckpt / "checkpoint").unlink()
    for path in ckpt.glob("*.data-*"):
        path.unlink()
    assert [each.problem() is None for each in checkpoints_in(ckpt)] == [False] * 3
    assert first_step(ckpt) == 0
