"""What is in a checkpoint equals the live values of its step, to the bit.

Each model is trained with asynchronous checkpoints, in this file run as a script: it
needs two virtual devices. A fresh process, which knows nothing of this package, then
restores each checkpoint with TensorFlow's Saver, by the graph that was saved beside it.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
import pytest

LAST = 10
STEPS = [0, 3, 6, 9, LAST]


def digest(names, values):
    """Return what tells values apart, by the names that they have in a checkpoint."""
    found = dict(zip(names, map(np.asarray, values), strict=True))
    for name in [name for name in found if name.endswith("-keys")]:
        # A table has no order.
        order = np.argsort(found[name])
        values = name.removesuffix("-keys") + "-values"
        found[name], found[values] = found[name][order], found[values][order]
    return {
        name: [
            str(value.dtype),
            list(value.shape),
            hashlib.sha1(
                repr(value.tolist()).encode()
                if value.dtype == object
                else np.ascontiguousarray(value).tobytes()
            ).hexdigest(),
        ]
        for name, value in found.items()
    }


def what_is_saved(graph):
    """Return names, those of slices included, and tensors that a graph's Saver saves."""
    from tensorflow.python.framework import tensor_util

    names, tensors = [], []
    for op in graph.get_operations():
        if op.type == "SaveV2":
            texts = zip(*map(tensor_util.constant_value, op.inputs[1:3]), strict=True)
            names += [
                f"{name.decode()} {spec.decode()}".strip() for name, spec in texts
            ]
            tensors += op.inputs[3:]
    return names, tensors


def read(folder):
    """Restore each checkpoint with TensorFlow's Saver; give its digest by its path."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    found = {}
    for index in sorted(folder.glob("*/*.index")):
        prefix = str(index.with_suffix(""))
        with tf.Graph().as_default() as graph:
            saver = tf1.train.import_meta_graph(prefix + ".meta")
            config = tf1.ConfigProto(allow_soft_placement=True)
            with tf1.Session(config=config) as session:
                saver.restore(session, prefix)
                names, tensors = what_is_saved(graph)
                found[prefix] = digest(names, session.run(tensors))
    return found


def train(folder):
    """Train each model; give the digests of live values by path of the checkpoint."""
    import estimator_runtime as er

    er.install()
    import tensorflow as tf

    tf1 = tf.compat.v1
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    live = {}

    class Records(tf1.train.SessionRunHook):
        def __init__(self, folder):
            self._folder = folder

        def _record(self, session):
            names, tensors = what_is_saved(session.graph)
            step = session.run(tf1.train.get_global_step(session.graph))
            if step in STEPS:
                prefix = str(self._folder / f"model.ckpt-{step}")
                live[prefix] = digest(names, session.run(tensors))

        def after_create_session(self, session, coord):
            self._record(session)

        def after_run(self, run_context, run_values):
            self._record(run_context.session)

    for name, build in MODELS.items():
        with tf.Graph().as_default():
            tf1.set_random_seed(3)
            step = build(tf)
            hooks = [Records(folder / name), tf1.train.StopAtStepHook(last_step=LAST)]
            with er.MonitoredTrainingSession(
                checkpoint_dir=str(folder / name), save_checkpoint_steps=3, hooks=hooks
            ) as session:
                while not session.should_stop():
                    session.run(step)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    config = tf.estimator.RunConfig(
        folder / "mirrored", train_distribute=strategy, save_checkpoints_steps=3
    )
    estimator = tf.estimator.Estimator(mirrored_model_fn, config=config)
    estimator.train(
        lambda: tf.data.Dataset.from_tensors(np.ones([8, 4], np.float32)).repeat(),
        steps=LAST,
        hooks=[Records(folder / "mirrored")],
    )
    return live


def adam_with_dropout(tf):
    tf1 = tf.compat.v1
    hidden = tf1.layers.dense(tf.ones([8, 20]), 30, tf.nn.relu)
    hidden = tf1.layers.dropout(hidden, 0.4, training=True)
    loss = tf.reduce_mean(tf.square(tf1.layers.dense(hidden, 1) - 3.0))
    optimizer = tf1.train.AdamOptimizer(0.01)
    return optimizer.minimize(loss, tf1.train.get_or_create_global_step())


def embeddings(tf, partitions=1, use_resource=True):
    tf1 = tf.compat.v1
    partitioner = tf1.fixed_size_partitioner(partitions) if partitions > 1 else None
    table = tf1.get_variable(
        "table", [50, 8], partitioner=partitioner, use_resource=use_resource
    )
    words = tf.random.uniform([8], maxval=50, dtype=tf.int32)
    rows = tf.nn.embedding_lookup(table, words)
    loss = tf.reduce_mean(tf.square(rows - 1.0))
    optimizer = tf1.train.AdamOptimizer(0.01)
    return optimizer.minimize(loss, tf1.train.get_or_create_global_step())


def reference_variables(tf):
    """The same model, of the kind of variables that are updated in place."""
    tf1 = tf.compat.v1
    return tf.group(
        embeddings(tf, use_resource=False),
        tf1.get_variable("count", initializer=0, use_resource=False).assign_add(2).op,
    )


def hash_tables(tf):
    tf1 = tf.compat.v1
    lookup = tf.lookup.experimental
    number = tf1.train.get_or_create_global_step().assign_add(1)
    words = lookup.MutableHashTable(tf.string, tf.int64, -1, name="words")
    dense = lookup.DenseHashTable(tf.int64, tf.float32, -1.0, -1, -2, name="dense")
    text = tf1.get_variable("text", initializer=["none", ""])
    return tf.group(
        words.insert(tf.as_string([number]), [number]),
        dense.insert([number, number * 7], [1.0, 0.5]),
        text.assign([tf.as_string(number), "x\0y"]),
    )


def mirrored_model_fn(features, labels, mode):
    import tensorflow as tf

    tf1 = tf.compat.v1
    hidden = tf1.layers.dense(features, 8, tf.nn.relu)
    hidden = tf1.layers.batch_normalization(hidden, training=True)
    loss = tf.reduce_mean(tf.square(tf1.layers.dense(hidden, 1) - 3.0))
    optimizer = tf1.train.AdamOptimizer(0.01)
    step = tf1.train.get_global_step()
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step)
    )


MODELS = {
    "adam with dropout": adam_with_dropout,
    "embeddings": embeddings,
    "partitioned": lambda tf: embeddings(tf, partitions=3),
    "reference variables": reference_variables,
    "hash tables": hash_tables,
}


@pytest.fixture(scope="module")
def outcomes(run_python, tmp_path_factory):
    """Digests by path of the checkpoint: of the live values, and as restored."""
    folder = tmp_path_factory.mktemp("equality")
    found = []
    for call in ("train", "read"):
        program = run_python(__file__, call, folder, timeout=240)
        assert program.returncode == 0, program.stderr
        found.append(json.loads(program.stdout.splitlines()[-1]))
    return found


@pytest.mark.parametrize("model", [*MODELS, "mirrored"])
def test_each_checkpoint_has_the_live_values_of_its_step(outcomes, model):
    live, restored = (
        {path: value for path, value in each.items() if f"/{model}/" in path}
        for each in outcomes
    )
    assert [int(path.rpartition("-")[2]) for path in live] == STEPS
    assert restored == live
    # They do change from step to step.
    assert len({json.dumps(value) for value in live.values()}) == len(STEPS)


if __name__ == "__main__":
    call, folder = {"train": train, "read": read}[sys.argv[1]], sys.argv[2]
    print(json.dumps(call(pathlib.Path(folder))))
