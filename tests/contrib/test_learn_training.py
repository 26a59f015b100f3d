"""The older RunConfig in real trainings: its tf_config reaches the sessions."""

import concurrent.futures
import json

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib.learn import RunConfig
from estimator_runtime.errors import ConfigError

estimator_runtime.install()

pytestmark = pytest.mark.filterwarnings(
    "ignore:estimator_runtime.contrib.learn.RunConfig is:DeprecationWarning"
)

_PS_AND_WORKERS = {
    "cluster": {"ps": ["p0:1"], "worker": ["w0:1", "w1:1"]},
    "task": {"type": "worker", "index": 1},
}
_FILTERS = ["/job:ps", "/job:worker/task:1"]


class _SeenConfigs(tf.estimator.SessionRunHook):
    """Keeps the ConfigProto of every session it is used in."""

    def __init__(self):
        self.seen = []

    def after_create_session(self, session, coord):
        self.seen.append(session._config)


def _input_fn():
    x = np.linspace(-1, 1, 32, dtype=np.float32)
    return tf.data.Dataset.from_tensors(({"x": x}, 3 * x + 1)).repeat(200)


def _model_fn(features, labels, mode):
    slope = tf.compat.v1.get_variable("slope", initializer=0.0)
    offset = tf.compat.v1.get_variable("offset", initializer=0.0)
    predicted = slope * features["x"] + offset
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=predicted)
    loss = tf.reduce_mean((predicted - labels) ** 2)
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.2).minimize(
        loss, global_step=tf.compat.v1.train.get_global_step()
    )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.parametrize(
    "tf_config",
    [
        "",
        {"task": {"type": "worker", "index": None}},
        {"task": {"type": None, "index": 0}},
        {"task": {"type": "master", "index": 0}, "environment": "cloud"},
    ],
)
def test_what_only_this_config_takes_for_no_cluster_trains_and_evaluates_here(
    tf_config, set_tf_config, tmp_path
):
    set_tf_config(tf_config)
    with pytest.raises(ConfigError, match=r"^TF_CONFIG: "):
        estimator_runtime.RunConfig()
    config = RunConfig(model_dir=str(tmp_path))
    metrics, _ = tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(_model_fn, config=config),
        tf.estimator.TrainSpec(_input_fn, max_steps=5),
        tf.estimator.EvalSpec(_input_fn, steps=1),
    )
    assert metrics["global_step"] == 5


def _config_of(estimator):
    """Return the ConfigProto of the estimator's sessions, and check it is used."""
    assert estimator._session_config == estimator.config.session_config
    return estimator._session_config


def test_an_estimator_trains_evaluates_and_predicts_with_tf_config(tmp_path, capfd):
    config = RunConfig(
        num_cores=3,
        log_device_placement=True,
        gpu_memory_fraction=0.25,
        model_dir=tmp_path,
    )
    estimator, hook = tf.estimator.Estimator(_model_fn, config=config), _SeenConfigs()
    estimator.train(_input_fn, hooks=[hook], max_steps=100)
    assert estimator.evaluate(_input_fn, steps=1, hooks=[hook])["loss"] < 0.01
    assert next(estimator.predict(_input_fn, hooks=[hook])) == pytest.approx(
        -2, abs=0.1
    )
    assert hook.seen == [_config_of(estimator)] * 3
    assert hook.seen[0].intra_op_parallelism_threads == 3
    assert hook.seen[0].inter_op_parallelism_threads == 3
    assert hook.seen[0].gpu_options.per_process_gpu_memory_fraction == 0.25
    assert hook.seen[0].allow_soft_placement  # as in every Estimator's session
    # What log_device_placement is for.
    assert "slope: (VarHandleOp): /job:localhost" in "".join(capfd.readouterr())


@pytest.mark.parametrize("replaced", [False, True])
def test_a_session_config_of_your_own_is_used_unchanged(replaced, set_tf_config):
    own = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=5)
    set_tf_config(_PS_AND_WORKERS)
    make = RunConfig().replace if replaced else RunConfig
    config = make(session_config=own)
    estimator = tf.estimator.Estimator(_model_fn, config=config)
    assert _config_of(estimator) == config.session_config == own


def test_workers_with_parameter_servers_do_not_wait_for_each_other(set_tf_config):
    set_tf_config(_PS_AND_WORKERS)
    estimator = tf.estimator.Estimator(_model_fn, config=RunConfig(num_cores=3))
    assert list(_config_of(estimator).device_filters) == _FILTERS
    assert _config_of(estimator).intra_op_parallelism_threads == 3


_TASK = """
import sys
import tensorflow as tf
import estimator_runtime
from estimator_runtime.contrib.learn import RunConfig

estimator_runtime.install()

def model_fn(features, labels, mode):
    slope = tf.compat.v1.get_variable("slope", initializer=0.0)
    step = tf.compat.v1.train.get_or_create_global_step()
    loss = tf.reduce_mean((slope - 3) ** 2)
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

def input_fn():
    return tf.data.Dataset.from_tensors(({"x": [1.0]}, [1.0])).repeat()

config = RunConfig(num_cores=1, model_dir=sys.argv[1])
config = config.replace(experimental_max_worker_delay_secs=0)
estimator = tf.estimator.Estimator(model_fn, config=config)
print(config.task_type, config.task_id, config.is_chief, flush=True)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(input_fn, max_steps=200),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
"""


def test_worker_0_leads_a_cluster_whose_ps_ends_and_does_not_wait_for_worker_1(
    run_python, tmp_path, free_addresses
):
    ps, *workers = free_addresses(3)
    cluster = {"ps": [ps], "worker": workers}

    def run(task_type):
        task = {"type": task_type, "index": 0}
        config = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
        return run_python("-W", "ignore", "-c", _TASK, tmp_path, **config)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ps, worker = pool.map(run, ["ps", "worker"])
    assert worker.returncode == 0, worker.stderr
    assert ps.returncode == 0, ps.stderr  # it ends with the training
    assert worker.stdout == "worker 0 True\n"
    checkpoint = tf.train.latest_checkpoint(tmp_path)
    assert tf.train.load_variable(checkpoint, "global_step") == 200
    assert tf.train.load_variable(checkpoint, "slope") == pytest.approx(3, abs=0.01)
