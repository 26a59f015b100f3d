"""RunConfig in a cluster, held against the frozen class itself."""

import inspect
import itertools
import re

import pytest
import tensorflow as tf
from tensorflow.python.distribute.distribute_config import DistributeConfig

import estimator_runtime as er
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching.frozen import StockRunConfig

PROPERTIES = [
    name
    for name, _ in inspect.getmembers(StockRunConfig, lambda v: isinstance(v, property))
]


def cluster(**replicas):
    """Return every task of these jobs an address."""
    return {
        job: [f"{job}{index}.example:2222" for index in range(count)]
        for job, count in replicas.items()
    }


CLUSTERS = [
    {},
    *(
        cluster(**{chief: 1}, **{job: n for job, n in others.items() if n})
        for chief in ("chief", "master")
        for others in (
            {"ps": ps, "worker": workers}
            for ps, workers in itertools.product(range(3), range(4))
        )
    ),
    cluster(chief=1, evaluator=1),
    cluster(chief=1, ps=1, worker=2, evaluator=2),
    cluster(master=1, worker=1, evaluator=1),
    cluster(zebra=2, worker=2, ps=1, chief=1, aardvark=3),
    cluster(master=1, tester=2, ps=2),
    # Addresses by index, as tf.train.ClusterSpec takes them too.
    {"chief": ["h0:1"], "worker": {"0": "h1:1", "1": "h2:1"}},
    # Refused: no chief, two chiefs, two kinds of chief.
    cluster(worker=1),
    cluster(worker=3),
    cluster(ps=2, worker=2),
    cluster(chief=2, worker=1),
    cluster(master=2, ps=1),
    cluster(chief=1, master=1, worker=1),
]
PLATFORMS = {
    "nothing": {},
    "service": {"service": {"name": "gke", "zone": 3}},
    "no service": {"service": None},
    "session_master": {"session_master": "grpc://elsewhere:1"},
    "eval_session_master": {"eval_session_master": "grpc://there:2"},
    "model_dir": {"model_dir": "/checkpoints"},
    "environment": {"environment": "cloud"},
    "everything": {
        "service": {},
        "session_master": "a",
        "eval_session_master": "",
        "model_dir": "gs://bucket/model",
        "environment": "google",
        "rpc_layer": "grpc",
        "of_the_platform": [1, {"two": None}],
    },
}


def tasks(jobs):
    """Every task of a cluster, the evaluator beside it, and some that are not there."""
    yield from (
        {"type": job, "index": index}
        for job, addresses in jobs.items()
        for index in range(len(addresses) + 1)  # one too many
    )
    yield from (
        {"type": "evaluator", "index": 0},
        {"type": "evaluator", "index": 7},
        {"type": "worker", "index": "0"},
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "worker", "index": -1},
        {"type": "nobody", "index": 0},
        {"type": "", "index": 0},
        {"type": "chief"},
        {"index": 0},
        {},
    )


def outcome(config_class):
    """Return all properties of a config, or the built-in type of its error."""
    try:
        config = config_class()
    except (ValueError, TypeError) as error:
        return TypeError if isinstance(error, TypeError) else ValueError
    return {name: getattr(config, name) for name in PROPERTIES}


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
@pytest.mark.parametrize("jobs", CLUSTERS, ids=lambda c: "+".join(
    f"{job}{len(addresses)}" for job, addresses in c.items()
) or "local")  # fmt: skip
def test_every_task_has_the_properties_that_the_frozen_class_gives_it(
    jobs, platform, set_tf_config
):
    ours, frozen = {}, {}
    for task in tasks(jobs):
        set_tf_config({"cluster": jobs, "task": task, **platform})
        ours[str(task)] = outcome(er.RunConfig)
        frozen[str(task)] = outcome(StockRunConfig)
    assert ours == frozen


_STRATEGY = tf.distribute.OneDeviceStrategy("/cpu:0")


@pytest.mark.parametrize(
    "arguments",
    [
        {"train_distribute": _STRATEGY},
        {"experimental_distribute": DistributeConfig(_STRATEGY)},
    ],
    ids=" ".join,
)
def test_workers_without_a_chief_are_right_with_a_strategy(arguments, set_tf_config):
    set_tf_config(
        {"cluster": cluster(worker=2), "task": {"type": "worker", "index": 1}}
    )
    config = er.RunConfig(**arguments)
    assert config.cluster_spec == tf.train.ClusterSpec(cluster(worker=2))


@pytest.mark.parametrize(
    "arguments",
    [
        {"eval_distribute": _STRATEGY},
        {"experimental_distribute": DistributeConfig()},
        {"experimental_distribute": DistributeConfig(eval_distribute=_STRATEGY)},
    ],
    ids=["for evaluation", "none", "none for training"],
)
@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        ({"chief": ["h:99999"], "worker": ["h:1"]}, "cluster['chief'][0]"),
        (cluster(worker=2), "cluster"),
    ],
)
def test_without_a_strategy_for_training_addresses_and_chief_are_checked(
    arguments, jobs, field, set_tf_config
):
    set_tf_config({"cluster": jobs, "task": {"type": "worker", "index": 0}})
    with pytest.raises(ConfigError, match=re.escape(f"TF_CONFIG: {field} ")):
        er.RunConfig(**arguments)
