"""A folder with real checkpoints, written once by TensorFlow's own Saver."""

import shutil

import pytest


@pytest.fixture(scope="session")
def _written(tmp_path_factory):
    import tensorflow as tf

    train = tf.compat.v1.train
    folder = tmp_path_factory.mktemp("written")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weight = tf.compat.v1.get_variable("weight", initializer=[0.0] * 100)
        step = train.get_or_create_global_step()
        saver = train.Saver(sharded=True, save_relative_paths=True)
        for number in (10, 20, 30):
            weight.load([float(number)] * 100, session)
            step.load(number, session)
            saver.save(session, str(folder / "model.ckpt"), global_step=number)
    return folder


@pytest.fixture
def ckpt(_written, tmp_path):
    """Return a folder with the checkpoints 10, 20 and 30 of `weight` = [step] * 100."""
    folder = tmp_path / "ckpt"
    shutil.copytree(_written, folder)
    return folder
