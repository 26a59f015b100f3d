"""What a step costs with its variables on a parameter server, in another process."""

import functools
import json
import os
import pathlib
import socket
import subprocess
import sys

import tensorflow as tf

from benchmarks.harness import measurement
from benchmarks.training import contenders
from benchmarks.training.contenders import Window
from benchmarks.training.models import CLUSTER_MODELS

_ROUNDS, _STEPS = 5, 1000
_BASELINE = "stock"
_TIMEOUT_SECS = 180
# A port that was free when it was picked may be taken when it is needed.
_ATTEMPTS = 3
_WAYS = {
    _BASELINE: contenders.stock_estimator,
    "packed": functools.partial(contenders.our_estimator, pack_transfers=True),
    "ours": contenders.our_estimator,
}


def measure(quick, announce):
    """Train on one chief and one parameter server, in three ways in turn.

    Both tasks are processes of their own on 127.0.0.1, made anew for every
    measurement. The figures are of the chief, but for one: the CPU time of the ps.

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON; one of `steps.measure`.
    """
    steps, rounds = (20, 1) if quick else (_STEPS, _ROUNDS)
    report = measurement.new_report("cluster", _BASELINE, quick, models={})
    for model in [*CLUSTER_MODELS][: 1 if quick else None]:
        ways = {
            way: functools.partial(_train_in_cluster, way, model, steps)
            for way in _WAYS
        }
        costs = measurement.interleave(ways, rounds, announce)
        report["models"][model] = {
            "title": f"{CLUSTER_MODELS[model].title}; 1 chief, 1 ps",
            "measured_steps": steps,
            "contenders": measurement.summarize(costs, _BASELINE),
        }
    return report


def _train_in_cluster(way, model, steps):
    for attempt in range(_ATTEMPTS):
        try:
            return _train_once(way, model, steps)
        except subprocess.SubprocessError:
            if attempt == _ATTEMPTS - 1:
                raise
    return None


def _train_once(way, model, steps):
    chief, ps = _free_addresses(2)
    cluster = {"chief": [chief], "ps": [ps]}
    server = subprocess.Popen(**_task(cluster, "ps", "serve"))
    try:
        task = _task(cluster, "chief", "train", way, model, str(steps))
        task["env"][measurement.SERVER_PID] = str(server.pid)
        result = subprocess.run(
            **task,
            stdout=subprocess.PIPE,
            check=True,
            timeout=_TIMEOUT_SECS,
        )
    finally:
        # A parameter server never ends by itself.
        server.kill()
        server.wait()
    return measurement.Cost(**json.loads(result.stdout.splitlines()[-1]))


def _task(cluster, task_type, *arguments):
    """Return the arguments of subprocess for one task of the cluster."""
    root = str(pathlib.Path(__file__).parents[2])
    task = {"cluster": cluster, "task": {"type": task_type, "index": 0}}
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        "args": [sys.executable, "-W", "ignore", "-m", __name__, *arguments],
        "env": {**os.environ, "TF_CONFIG": json.dumps(task), "PYTHONPATH": path},
    }


def _free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def _be_a_task(role, *arguments):
    """Be what `_task` describes; a chief prints what a step cost."""
    tf.get_logger().setLevel("ERROR")
    config = json.loads(os.environ["TF_CONFIG"])
    server = tf.distribute.Server(config["cluster"], config["task"]["type"], 0)
    if role == "serve":
        server.join()
    way, model, steps = arguments
    window = Window(warm_up=201, steps=int(steps))
    cost = _WAYS[way](CLUSTER_MODELS[model], window)
    print(json.dumps(vars(cost)))


if __name__ == "__main__":
    _be_a_task(*sys.argv[1:])
