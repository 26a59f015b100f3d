"""Two processes train one model under MultiWorkerMirroredStrategy."""

import json
import os
import re
import signal
import subprocess
import sys

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


def run_two_workers(script, folder, addresses):
    """Run a script in two tasks; give (exit status, output, errors) of each."""
    inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    workers = []
    for index in range(2):
        task = {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": index},
        }
        workers.append(
            subprocess.Popen(
                [sys.executable, "-m", "estimator_runtime", "run", script, "model"],
                cwd=folder,
                env={**inherited, "TF_CONFIG": json.dumps(task)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        ends = [worker.communicate(timeout=120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return [(w.returncode, *end) for w, end in zip(workers, ends, strict=True)]


def test_a_strategy_leaves_sigterm_to_the_program(tmp_path, free_addresses):
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
    done = subprocess.run(
        [sys.executable, "-m", "estimator_runtime", "run", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "TF_CONFIG": json.dumps(task)},
        capture_output=True,
        text=True,
        timeout=120,
    )
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
    tmp_path, free_addresses
):
    script = tmp_path / "train.py"
    script.write_text(LOOKUPS)
    ends = run_two_workers(script, tmp_path, free_addresses(2))
    for status, _, errors in ends:
        assert status == 0, errors
    # Row r is in the lookups of more than r ids, of 1 to 8; a loss counts half.
    table = [(row - 8) / 2 for row in range(9)]
    assert ends[0][1].splitlines()[-1] == str(table)


# As if the runtime had taken the state file for one that can be read.
WITHOUT_RECOVERY = """
from estimator_runtime.checkpoint.restore import recovery
recovery.recover = lambda folder: None
"""


def test_a_task_that_restores_nothing_beside_a_good_checkpoint_is_refused(
    tmp_path, free_addresses
):
    script, unchecked = tmp_path / "train.py", tmp_path / "unchecked.py"
    script.write_text(PROGRAM)
    unchecked.write_text(WITHOUT_RECOVERY + PROGRAM)
    first = run_two_workers(script, tmp_path, free_addresses(2))
    assert [status for status, _, _ in first] == [0, 0]
    # Worker 0 has saved the last step when it looks; the other may look before that.
    # Two equal replicas, whose losses count half each: 1 - (1 - 2 * 0.1) ** 20.
    assert re.fullmatch(r"weight 0\.988\d*", first[0][1].strip())
    model = tmp_path / "model"
    assert (model / "model.ckpt-20.index").exists()
    (model / "checkpoint").write_text("model_checkpoint_path: model.ckpt-20")
    before = sorted(path.name for path in model.glob("model.ckpt*"))
    ends = run_two_workers(unchecked, tmp_path, free_addresses(2))
    assert 0 not in [status for status, _, _ in ends]
    # Both refuse, but the end of the first may be what the other one sees.
    refused = f"training would start over in {str(model)!r}, although "
    assert any(refused in errors for _, _, errors in ends), ends
    assert sorted(path.name for path in model.glob("model.ckpt*")) == before
