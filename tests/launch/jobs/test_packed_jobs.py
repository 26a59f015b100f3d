"""Jobs with parameter servers train the same values with and without packing."""

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.long("whole jobs with two parameter servers, two in a row")

_PROGRAM = """
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.INFO)


def model_fn(features, labels, mode, config):
    columns = [tf.feature_column.numeric_column("x", shape=[8])] + [
        tf.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_identity(f"c{i}", 50), 4
        )
        for i in range(3)
    ]
    if "synchronous" in sys.argv:
        columns = columns[:1]  # sparse gradients go through reference handles
    partitioner = v1.fixed_size_partitioner(2) if "partitioned" in sys.argv else None
    with v1.variable_scope("model", partitioner=partitioner):
        net = v1.feature_column.input_layer(features, columns)
        for _ in range(3):
            net = v1.layers.dense(net, 16, tf.nn.relu)
        logits = v1.layers.dense(net, 1)[:, 0]
    loss = tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    v1.summary.scalar("mean", tf.reduce_mean(logits))
    step = v1.train.get_global_step()
    optimizer, hooks = v1.train.AdamOptimizer(0.01), []
    if "synchronous" in sys.argv:
        optimizer = v1.train.SyncReplicasOptimizer(optimizer, 1, 1)
    train_op = optimizer.minimize(loss, step)
    if "synchronous" in sys.argv:
        hooks = [optimizer.make_session_run_hook(config.is_chief)]
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, training_hooks=hooks
    )


def input_fn():
    draw = np.random.RandomState(0)
    x = {"x": draw.rand(100, 8).astype("f")}
    x.update({f"c{i}": draw.randint(0, 50, 100) for i in range(3)})
    labels = draw.randint(0, 2, 100).astype("f")
    # The last of four batches of an epoch has 4 rows.
    return tf.data.Dataset.from_tensor_slices((x, labels)).batch(32).repeat()


tf.keras.utils.set_random_seed(3)
config = tf.estimator.RunConfig(
    sys.argv[1], tf_random_seed=3, save_checkpoints_steps=20, log_step_count_steps=10
)
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(input_fn, max_steps=60),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
"""


@pytest.mark.parametrize("kind", ["whole", "partitioned", "synchronous"])
def test_all_values_of_a_job_are_equal_to_the_bit(launch, tmp_path, kind):
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    for name in ("packed", "plain"):
        flag = () if name == "plain" else ("--pack-transfers",)
        job = launch("--ps", "2", *flag, program, name, kind)
        assert job.end() == 0, job.text
        assert ("cross between tasks as" in job.text) is (name == "packed"), job.text
    for step in (0, 20, 40, 60):
        packed, plain = (
            tf.train.load_checkpoint(str(tmp_path / name / f"model.ckpt-{step}"))
            for name in ("packed", "plain")
        )
        shapes = packed.get_variable_to_shape_map()
        assert shapes == plain.get_variable_to_shape_map()
        assert len(shapes) >= 20
        for name in shapes:
            np.testing.assert_array_equal(
                packed.get_tensor(name), plain.get_tensor(name), err_msg=name
            )
