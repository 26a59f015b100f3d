"""What Estimators do with the checkpoints that they find in their folder."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.errors import CheckpointError

er.install()

READS = {
    "evaluate": lambda estimator: estimator.evaluate(input_fn, steps=1)["loss"],
    "predict": lambda estimator: next(estimator.predict(input_fn))["weight"],
}


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=7.0)
    step = tf.compat.v1.train.get_global_step()
    return tf.estimator.EstimatorSpec(
        mode,
        loss=tf.identity(weight),
        predictions={"weight": tf.reshape(weight, [1])},
        train_op=tf.group(weight.assign(3.0), step.assign_add(1)),
    )


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_checkpoint_that_tensorflow_does_not_find_is_an_error(tmp_path, read):
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path / "model"))
    assert read(estimator) == 7.0  # as in TensorFlow, where nothing was trained
    estimator.train(input_fn, steps=1)
    assert read(estimator) == 3.0
    state = tmp_path / "model" / "checkpoint"
    state.write_text("model_checkpoint_path: model.ckpt-1\n")
    with pytest.raises(CheckpointError, match=r"/model\.ckpt-1 is good: TensorFlow"):
        read(estimator)
    state.unlink()
    with pytest.raises(CheckpointError, match="would be untrained"):
        read(estimator)


def test_a_training_that_is_complete_says_so(tmp_path, caplog):
    folder = str(tmp_path / "model")
    told = (
        f"nothing to train: {folder} is at step 3, and max_steps is 3; to train on, give "
        "more steps, or to start over, another model_dir"
    )
    for max_steps in (2, 3, 3):
        assert told not in caplog.messages
        tf.estimator.Estimator(model_fn, folder).train(input_fn, max_steps=max_steps)
    assert told in caplog.messages
