"""When a training returns, a program can read all that its hooks have summarized."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime as er

tf1 = tf.compat.v1
train = tf1.train


def steps_in(folder):
    """Return the steps of the events in a folder; a cut record is an error."""
    (path,) = tf.io.gfile.glob(f"{folder}/events.*")
    return [
        event.step or int(event.tagged_run_metadata.tag.removeprefix("step_"))
        for event in tf1.train.summary_iterator(path)
        if event.step or event.HasField("tagged_run_metadata")
    ]


@pytest.mark.parametrize("is_async", [True, False])
def test_event_files_of_hooks_with_a_folder_of_their_own_are_whole(is_async, tmp_path):
    counted, profiled, kept = (
        str(tmp_path / n) for n in ("counts", "profiles", "kept")
    )
    (tmp_path / "profiles").mkdir()

    def model_fn(features, labels, mode):
        # A large graph: an event of it does not fit into the buffer of a file.
        weights = tf1.get_variable("weights", initializer=np.zeros(5000, np.float32))
        loss = tf.reduce_sum(tf.square(weights - features))
        step = train.get_global_step()
        train_op = train.GradientDescentOptimizer(0.1).minimize(loss, step)
        hooks = [
            train.StepCounterHook(10, output_dir=counted),
            train.ProfilerHook(30, output_dir=profiled),
            train.StepCounterHook(10, summary_writer=tf1.summary.FileWriter(kept)),
        ]
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=train_op, training_hooks=hooks
        )

    def input_fn():
        return tf.data.Dataset.from_tensors(tf.ones([5000])).repeat()

    config = er.RunConfig(
        tmp_path, save_checkpoints_steps=20, async_checkpoint=is_async
    )
    tf.estimator.Estimator(model_fn, config=config).train(input_fn, steps=35)
    assert steps_in(counted) == steps_in(kept) == [11, 21, 31]
    assert steps_in(profiled) == [30]
    assert steps_in(tmp_path)[-1] == 35
