"""What stands where TensorFlow 2.16 removed modules."""

import importlib
import importlib.util

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.tf_internals import versions

estimator_runtime.install()

pytestmark = pytest.mark.skipif(
    versions.parse(tf.__version__) < (2, 16), reason="TensorFlow 2.15 has them"
)


@pytest.mark.parametrize(
    "name", ["tpu_embedding", "session_support", "tpu_embedding_gradient"]
)
def test_a_stand_in_can_be_imported_and_refuses_to_be_used(name):
    module = importlib.import_module(f"tensorflow.python.tpu.{name}")
    assert importlib.util.find_spec(module.__name__).name == module.__name__
    with pytest.raises(NotImplementedError, match=f"{name}.Anything was removed in"):
        module.Anything(1, two=2)


def test_tpu_optimizer_parameters_are_back_in_the_api():
    from tensorflow.python.tpu import tpu_embedding

    public = tf.compat.v1.tpu.experimental
    assert public.AdamParameters is tpu_embedding.AdamParameters
    again = importlib.import_module("tensorflow.compat.v1.tpu.experimental")
    assert again.AdamParameters is tpu_embedding.AdamParameters


def test_symbols_exported_to_the_estimator_api_are_found_by_name_again():
    from tensorflow.python.util import tf_export

    assert tf_export.get_v2_names(tf.estimator.EstimatorSpec) == [
        "estimator.EstimatorSpec"
    ]
    assert tf_export.get_v1_names(tf.estimator.TrainSpec) == ["estimator.TrainSpec"]
    assert tf_export.get_v2_names(tf.Variable) == ["Variable"]


def test_the_asynchronous_hook_saves(tmp_path):
    from tensorflow.python.tpu import async_checkpoint

    hook = async_checkpoint.AsyncCheckpointSaverHook(
        checkpoint_dir=str(tmp_path), save_steps=2
    )
    with tf.Graph().as_default():
        add = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        with estimator_runtime.MonitoredTrainingSession(
            scaffold=tf.compat.v1.train.Scaffold(), hooks=[hook]
        ) as session:
            session.run(add)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
