"""What a step costs with its variables on a parameter server, in another process."""

import contextlib
import functools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import tensorflow as tf

from benchmarks.harness import measurement
from benchmarks.steps.slow_network import relay
from benchmarks.training import contenders
from benchmarks.training.contenders import Window
from benchmarks.training.models import CLUSTER_MODELS, check_names

_ROUNDS, _STEPS, _WARM_UP = 5, 1000, 201
_ENDLESS = 10**9  # steps of a worker, until it is killed
_BASELINE = "stock"
_TIMEOUT_SECS = 180
# A port that was free when it was picked may be taken when it is needed.
_ATTEMPTS = 3
_WAYS = {
    _BASELINE: contenders.stock_estimator,
    "ours": functools.partial(contenders.our_estimator, pack_transfers=True),
    "not packed": functools.partial(contenders.our_estimator, pack_transfers=False),
}


def measure(
    quick,
    announce,
    *,
    models=None,
    trainers=1,
    rounds=_ROUNDS,
    steps=_STEPS,
    delay_ms=0.0,
):
    """Train on a chief, maybe workers, and one parameter server, in three ways in turn.

    All tasks are processes of their own on 127.0.0.1, made anew for every measurement.
    The figures are of the chief, but for the CPU time of the ps, which is for each step
    of the chief too.

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.
        models: Names of the models; None for all, or with `quick` for the first one.
        trainers: The chief and the workers, together.
        rounds: How often each is measured; once with `quick`.
        steps: How many steps of the chief are measured; 20 with `quick`.
        delay_ms: By how many milliseconds everything that one task sends to another
            arrives later than on 127.0.0.1.

    Returns:
        The report, ready for JSON; one of `steps.measure`.

    Raises:
        SystemExit: If there is no model of a name, or the delay is negative.
    """
    if delay_ms < 0:
        raise SystemExit(
            f"benchmarks cluster: error: --delay-ms is {delay_ms:g}; give 0 or more"
        )
    check_names(models, CLUSTER_MODELS, "cluster")
    models = models or [*CLUSTER_MODELS][: 1 if quick else None]
    if quick:
        steps, rounds = 20, 1
    report = measurement.new_report("cluster", _BASELINE, quick, models={})
    for model in models:
        ways = {
            way: functools.partial(
                _train_in_cluster, way, model, steps, trainers, delay_ms / 1000
            )
            for way in _WAYS
        }
        costs = measurement.interleave(ways, rounds, announce)
        others = f", workers: {trainers - 1}" if trainers > 1 else ""
        delay = f"; {delay_ms:g} ms each way" if delay_ms else ""
        report["models"][model] = {
            "title": f"{CLUSTER_MODELS[model].title}; 1 chief{others}, 1 ps{delay}",
            "measured_steps": steps,
            "contenders": measurement.summarize(costs, _BASELINE),
        }
    return report


def _train_in_cluster(way, model, steps, trainers, delay_secs):
    for attempt in range(_ATTEMPTS):
        try:
            with contextlib.ExitStack() as relays:
                return _train_once(way, model, steps, trainers, delay_secs, relays)
        except subprocess.SubprocessError:
            if attempt == _ATTEMPTS - 1:
                raise
    return None


def _train_once(way, model, steps, trainers, delay_secs, relays):
    chief, ps, *workers = addresses = _free_addresses(trainers + 1)
    cluster = {"chief": [chief], "ps": [ps], **({"worker": workers} if workers else {})}
    routes = {
        address: relays.enter_context(relay(address, delay_secs))
        for address in addresses
        if delay_secs
    }
    task_of = functools.partial(_task, cluster, routes)
    others = [subprocess.Popen(**task_of("ps", 0, "serve"))]
    try:
        with tempfile.TemporaryDirectory() as folder:
            about = [way, model, str(trainers), folder]
            for index in range(len(workers)):
                task = task_of("worker", index, "train", *about, str(_ENDLESS))
                others.append(subprocess.Popen(**task, stdout=subprocess.DEVNULL))
            task = task_of("chief", 0, "train", *about, str(steps))
            task["env"][measurement.SERVER_PID] = str(others[0].pid)
            result = subprocess.run(
                **task,
                stdout=subprocess.PIPE,
                check=True,
                timeout=_TIMEOUT_SECS,
            )
    finally:
        # Neither a parameter server nor one of these workers ends by itself.
        for process in reversed(others):  # a worker without its ps would complain
            process.kill()
            process.wait()
    return measurement.Cost(**json.loads(result.stdout.splitlines()[-1]))


def _task(cluster, routes, task_type, index, *arguments):
    """Return the arguments of subprocess for one task of the cluster.

    It listens at its address, and connects to the others by the routes to theirs.
    """
    own = cluster[task_type][index]
    cluster = {
        job: [each if each == own else routes.get(each, each) for each in addresses]
        for job, addresses in cluster.items()
    }
    root = str(pathlib.Path(__file__).parents[2])
    task = {"cluster": cluster, "task": {"type": task_type, "index": index}}
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        "args": [sys.executable, "-W", "ignore", "-m", __name__, *arguments],
        "env": {
            **os.environ,
            "TF_CONFIG": json.dumps(task),
            "PYTHONPATH": path,
            # The workers never end by themselves.
            "ESTIMATOR_RUNTIME_LAST_STEPS_SECS": "0",
        },
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
    task = config["task"]
    server = tf.distribute.Server(config["cluster"], task["type"], task["index"])
    if role == "serve":
        server.join()
    way, model, trainers, meeting, steps = arguments
    window = Window(
        warm_up=_WARM_UP,
        steps=int(steps),
        trainers=int(trainers),
        meeting=meeting if int(trainers) > 1 else None,
    )
    cost = _WAYS[way](CLUSTER_MODELS[model], window)
    print(json.dumps(vars(cost)))


if __name__ == "__main__":
    _be_a_task(*sys.argv[1:])
