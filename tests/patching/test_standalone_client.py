"""One client trains through the servers of other processes (a "remote cluster")."""

import os
import subprocess
import sys

SERVER = """
import sys
import tensorflow as tf
cluster = tf.train.ClusterSpec({"chief": [sys.argv[1]]})
server = tf.distribute.Server(cluster, job_name="chief", task_index=0)
print("ready", flush=True)
sys.stdin.read()
"""
CLIENT = """
import sys
import tensorflow as tf
from tensorflow.python.distribute.distribute_config import DistributeConfig

address, model_dir = sys.argv[1:]
seen = []


class Watch(tf.compat.v1.train.SessionRunHook):
    def after_create_session(self, session, coord):
        seen.append(session.sess_str.decode())


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


def strategy():
    return tf.distribute.OneDeviceStrategy("/job:chief/task:0/cpu:0")


remote = tf.train.ClusterSpec({"chief": [address]})
config = tf.estimator.RunConfig(
    model_dir, experimental_distribute=DistributeConfig(strategy(), strategy(), remote)
)
estimator = tf.estimator.Estimator(model_fn, config=config)
estimator.train(input_fn, max_steps=20, hooks=[Watch()])
metrics = estimator.evaluate(input_fn, steps=1, hooks=[Watch()])
assert seen == [f"grpc://{address}"] * 2, seen
print(metrics["global_step"], round(float(metrics["loss"]), 4))
"""


RUN = "-m estimator_runtime run client.py".split()


def test_a_standalone_client_trains_in_the_sessions_of_a_server(
    tmp_path, free_addresses
):
    [address] = free_addresses(1)
    for name, text in (("server.py", SERVER), ("client.py", CLIENT)):
        (tmp_path / name).write_text(text)
    python = [sys.executable, "-W", "ignore"]
    server = subprocess.Popen(
        [*python, "server.py", address],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    try:
        assert server.stdout.readline() == b"ready\n"
        client = subprocess.run(
            [*python, *RUN, address, "model"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        server.kill()
        server.communicate()
    # (1 - 0.2) ** 20 from the goal, squared.
    assert (client.stdout, client.returncode) == ("20 0.0001\n", 0), client.stderr
