"""Two processes train one model under MultiWorkerMirroredStrategy."""

import concurrent.futures
import json
import re
import signal

import pytest

# Without a chief: worker 0 leads. As Keras's tutorials set it up, strategy first.
PROGRAM = """
import sys
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean(tf.square(weight - labels))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    step = tf.compat.v1.train.get_global_step()
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step)
    )


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


config = tf.estimator.RunConfig(sys.argv[1], train_distribute=strategy)
estimator = tf.estimator.Estimator(model_fn, config=config)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(input_fn, max_steps=20),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
print("weight", estimator.get_variable_value("weight"))
"""


@pytest.fixture
def run_two_workers(run_script, tmp_path, free_addresses):
    """Return a function that runs a script in two tasks; it returns both processes."""

    def run_two_workers(script):
        cluster = {"worker": free_addresses(2)}

        def run(index):
            task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            config = {"TF_CONFIG": json.dumps(task)}
            return run_script(script, "model", cwd=tmp_path, **config)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(run, range(2)))

    return run_two_workers


def test_a_strategy_leaves_sigterm_to_the_program(run_script, tmp_path, free_addresses):
    program = (
        "import os, signal, time\n"
        "import tensorflow as tf\n"
        "tf.distribute.MultiWorkerMirroredStrategy()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(1)\n"
        "print('still there')\n"
    )
    (tmp_path / "train.py").write_text(program)
    task = {
        "cluster": {"worker": free_addresses(1)},
        "task": {"type": "worker", "index": 0},
    }
    done = run_script("train.py", cwd=tmp_path, TF_CONFIG=json.dumps(task))
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr


# At step s, worker w looks up 2s + w + 1 ids: neither length is ever the other's.
LOOKUPS = """
import sys
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def model_fn(features, labels, mode):
    table = tf.compat.v1.get_variable("table", initializer=tf.zeros([9, 1]))
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, features))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    step = tf.compat.v1.train.get_global_step()
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step)
    )


def input_fn(config):
    data = tf.data.Dataset.range(4)
    data = data.map(lambda s: (tf.range(2 * s + config.task_id + 1), 0))
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    return data.with_options(options)


config = tf.estimator.RunConfig(sys.argv[1], train_distribute=strategy)
estimator = tf.estimator.Estimator(model_fn, config=config)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(input_fn, max_steps=4),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
print(estimator.get_variable_value("table").ravel().tolist())
"""


def test_workers_train_a_table_of_which_each_step_looks_up_another_part(
    run_two_workers, tmp_path
):
    script = tmp_path / "train.py"
    script.write_text(LOOKUPS)
    ends = run_two_workers(script)
    for each in ends:
        assert each.returncode == 0, each.stderr
    # Row r is in the lookups of more than r ids, of 1 to 8; a loss counts half.
    table = [(row - 8) / 2 for row in range(9)]
    assert ends[0].stdout.splitlines()[-1] == str(table)


# As if the runtime had taken the state file for one that can be read.
WITHOUT_RECOVERY = """
from estimator_runtime.checkpoint.restore import recovery
recovery.recover = lambda folder: None
"""


def test_a_task_that_restores_nothing_beside_a_good_checkpoint_is_refused(
    run_two_workers, tmp_path
):
    script, unchecked = tmp_path / "train.py", tmp_path / "unchecked.py"
    script.write_text(PROGRAM)
    unchecked.write_text(WITHOUT_RECOVERY + PROGRAM)
    first = run_two_workers(script)
    assert [each.returncode for each in first] == [0, 0]
    # Worker 0 has saved the last step when it looks; the other may look before that.
    # Two equal replicas, whose losses count half each: 1 - (1 - 2 * 0.1) ** 20.
    assert re.fullmatch(r"weight 0\.988\d*", first[0].stdout.strip())
    model = tmp_path / "model"
    assert (model / "model.ckpt-20.index").exists()
    (model / "checkpoint").write_text("model_checkpoint_path: model.ckpt-20")
    before = sorted(path.name for path in model.glob("model.ckpt*"))
    ends = run_two_workers(unchecked)
    assert 0 not in [each.returncode for each in ends]
    # Both refuse, but the end of the first may be what the other one sees.
    refused = f"training would start over in {str(model)!r}, although "
    assert any(refused in each.stderr for each in ends), ends
    assert sorted(path.name for path in model.glob("model.ckpt*")) == before
