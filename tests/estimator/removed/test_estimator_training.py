"""RunConfigs under the distribute coordinator; on 2.15 held against TensorFlow's own."""

import json

import pytest
import tensorflow as tf
from tensorflow.python.distribute.distribute_config import DistributeConfig

import estimator_runtime
from estimator_runtime.estimator.removed import estimator_training
from estimator_runtime.tf_internals import versions

estimator_runtime.install()

_WORKERS = {"cluster": {"worker": ["localhost:2001", "localhost:2002"]}}
_CHIEF = {"cluster": {"chief": ["localhost:2000"], **_WORKERS["cluster"]}}
_MASTER = {"cluster": {"master": ["localhost:2000"], **_WORKERS["cluster"]}}
_REMOTE = tf.train.ClusterSpec(_CHIEF["cluster"])


def _task(tf_config, task_type, index):
    return {**tf_config, "task": {"type": task_type, "index": index}}


def _strategy():
    return tf.distribute.OneDeviceStrategy("/cpu:0")


_CASES = {
    "local": ({}, {"train_distribute": _strategy}),
    "worker without chief": (_task(_WORKERS, "worker", 1), {"train_distribute": _strategy}),
    "chief": (_task(_CHIEF, "chief", 0), {"train_distribute": _strategy}),
    "no task": (_CHIEF, {"train_distribute": _strategy}),
    "master": (_task(_MASTER, "master", 0), {"train_distribute": _strategy}),
    "evaluation only": (_task(_CHIEF, "worker", 1), {"eval_distribute": _strategy}),
    "inside": ({}, {"experimental_distribute": lambda: DistributeConfig(_strategy(), _strategy())}),
}  # fmt: skip
_PROPERTIES = (
    "cluster_spec task_type task_id master evaluation_master is_chief service "
    "num_ps_replicas num_worker_replicas global_id_in_cluster session_config"
).split()


def _properties(monkeypatch, case):
    tf_config, arguments = _CASES[case]
    monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    config = tf.estimator.RunConfig(**{k: make() for k, make in arguments.items()})
    found = {name: getattr(config, name) for name in _PROPERTIES}
    found["mode"] = config._distribute_coordinator_mode
    found["strategies"] = [
        type(s).__name__ for s in (config.train_distribute, config.eval_distribute)
    ]
    return found


@pytest.mark.parametrize(
    "case, mode",
    [
        ("local", None),
        ("worker without chief", "independent_worker"),
        ("chief", "independent_worker"),
        ("no task", "independent_worker"),
        ("master", None),
        ("evaluation only", None),
        ("inside", None),
    ],
)
def test_the_coordinator_runs_jobs_with_a_train_strategy_and_a_cluster(
    monkeypatch, case, mode
):
    assert _properties(monkeypatch, case)["mode"] == mode


@pytest.mark.skipif(
    versions.parse(tf.__version__) >= (2, 16), reason="TensorFlow's own is gone"
)
@pytest.mark.parametrize("case", _CASES)
def test_a_config_is_initialized_as_by_tensorflows_own_module(monkeypatch, case):
    from tensorflow_estimator.python.estimator import run_config

    stock = _properties(monkeypatch, case)
    assert run_config.distribute_coordinator_training is not estimator_training
    monkeypatch.setattr(
        run_config, "distribute_coordinator_training", estimator_training
    )
    assert _properties(monkeypatch, case) == stock


@pytest.mark.skipif(
    versions.parse(tf.__version__) < (2, 16), reason="TensorFlow's own accepts it"
)
def test_a_standalone_client_is_refused():
    with pytest.raises(ValueError, match="leave it out, and run your program"):
        tf.estimator.RunConfig(
            experimental_distribute=DistributeConfig(_strategy(), None, _REMOTE)
        )
