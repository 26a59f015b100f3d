"""Asks TensorFlow 1.15.5 what its tf.contrib.learn.RunConfig does; writes the answers.

Run by hand, in an environment of its own (Python 3.7, `pip install
tensorflow==1.15.5 "protobuf<3.21"`), after changing a question below:

    python tests/contrib/record_tensorflow_1_15.py

The answers go to tensorflow_1_15.json beside this file, which test_learn.py reads.
"""

import itertools
import json
import os
import re

WORKERS = ["w0:1", "w1:1", "w2:1"]
CLUSTERS = [
    {},
    {"worker": WORKERS[:1]},
    {"worker": WORKERS},
    {"ps": ["p0:1"]},
    {"ps": ["p0:1", "p1:1"], "worker": WORKERS},
    {"master": ["m0:1"]},
    {"master": ["m0:1"], "ps": ["p0:1"]},
    {"master": ["m0:1"], "ps": ["p0:1", "p1:1"], "worker": WORKERS[:2]},
    {"chief": ["c0:1"]},
    {"chief": ["c0:1"], "ps": ["p0:1"], "worker": WORKERS[:2]},
    {"chief": ["c0:1"], "worker": WORKERS[:1], "evaluator": ["e0:1"]},
    {"trainer": ["t0:1", "t1:1"], "ps": ["p0:1"]},
]
ENVIRONMENTS = ["cloud", "google"]
CLUSTER_PROPERTIES = [
    "environment",
    "task_type",
    "task_id",
    "is_chief",
    "master",
    "evaluation_master",
    "num_ps_replicas",
    "num_worker_replicas",
    "model_dir",
]
ARGUMENT_PROPERTIES = [
    "tf_random_seed",
    "save_summary_steps",
    "save_checkpoints_secs",
    "save_checkpoints_steps",
    "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours",
    "log_step_count_steps",
    "protocol",
    "model_dir",
    "session_creation_timeout_secs",
    "device_fn",
    "train_distribute",
    "eval_distribute",
    "experimental_max_worker_delay_secs",
    "master",
    "evaluation_master",
]
# A session_config is written as the text of the ConfigProto.
ARGUMENTS = [
    {},
    {"master": ""},
    {"master": "grpc://m:1"},
    {"master": "grpc://m:1", "evaluation_master": "grpc://e:1"},
    {"evaluation_master": None},
    {"num_cores": 3},
    {"num_cores": None},
    {"log_device_placement": True},
    {"log_device_placement": None},
    {"gpu_memory_fraction": 0.25},
    {"gpu_memory_fraction": 0},
    {"gpu_memory_fraction": 1.5},
    {"gpu_memory_fraction": None},
    {"num_cores": 2, "log_device_placement": True, "gpu_memory_fraction": 0.5},
    {"tf_random_seed": 7},
    {"save_summary_steps": 0},
    {"save_summary_steps": None},
    {"keep_checkpoint_max": 0},
    {"keep_checkpoint_max": None},
    {"keep_checkpoint_every_n_hours": 0.5},
    {"log_step_count_steps": None},
    {"log_step_count_steps": 1},
    {"protocol": "grpc"},
    {"protocol": "grpc+verbs"},
    {"model_dir": "/models"},
    {"session_creation_timeout_secs": 10},
    {"session_config": "intra_op_parallelism_threads: 5 device_filters: '/job:ps'"},
] + [
    {"save_checkpoints_secs": secs, "save_checkpoints_steps": steps}
    for secs, steps in itertools.product([0, None, 60], [None, 0, 10])
]
REPLACED = [
    {},
    {"model_dir": "/other"},
    {"tf_random_seed": 9},
    {"tf_random_seed": 1.5},
    {"save_summary_steps": -1},
    {"save_checkpoints_steps": 5},
    {"save_checkpoints_steps": -1},
    {"save_checkpoints_secs": 5},
    {"save_checkpoints_secs": -1},
    {"save_checkpoints_secs": 5, "save_checkpoints_steps": 5},
    {"save_checkpoints_secs": None, "save_checkpoints_steps": None},
    {"session_config": "log_device_placement: true"},
    {"session_config": None},
    {"keep_checkpoint_max": -1},
    {"keep_checkpoint_every_n_hours": 0},
    {"log_step_count_steps": 0},
    {"train_distribute": None, "eval_distribute": None},
    {"device_fn": 5},
    {"device_fn": None},
    {"protocol": "http"},
    {"experimental_distribute": None},
    {"experimental_max_worker_delay_secs": 3},
    {"experimental_max_worker_delay_secs": 1.5},
    {"session_creation_timeout_secs": 0},
    {"session_creation_timeout_secs": 9},
    {"tf_config": "log_device_placement: true"},
] + [
    {name: 1}
    for name in (
        "num_cores",
        "log_device_placement",
        "gpu_memory_fraction",
        "master",
        "evaluation_master",
        "environment",
        "is_chief",
        "task_id",
        "cluster_spec",
        "service",
        "some_undefined_property",
    )
]


def tasks(cluster):
    """Return the tasks to ask about: every one there is, and some that are not."""
    yield None
    yield {}
    for index in (0, 1, "1"):
        yield {"index": index}
    for task_type in sorted(set(cluster) | {"master", "worker"}):
        yield {"type": task_type}
        for index in range(len(cluster.get(task_type, [0, 0]))):
            yield {"type": task_type, "index": index}
    yield {"type": "evaluator", "index": 0}
    if sum(map(len, cluster.values())) > 1:
        yield {"type": sorted(cluster)[0], "index": 3}
        yield {"type": "nobody", "index": 0}


def questions():
    """Return (TF_CONFIG, arguments) of every question about clusters."""
    for cluster in CLUSTERS:
        alone = sum(map(len, cluster.values())) == 1
        for task in tasks(cluster):
            task_type = (task or {}).get("type")
            # In a cluster of one, 1.15 never looks whether it has the task.
            if alone and task_type not in (None, "evaluator", *cluster):
                continue
            document = {"cluster": cluster} if cluster else {}
            if task is not None:
                document["task"] = task
            yield document, {}
            if (task_type or "nobody") != "nobody" and task.get("index") == 0:
                for environment in ENVIRONMENTS:
                    yield dict(document, environment=environment), {}
    yield {"environment": "elsewhere", "task": {"type": "worker"}}, {}
    for task_type, index in (("worker", 2), ("ps", 0), ("evaluator", 0)):
        document = {
            "cluster": {"ps": ["p0:1"], "my_job": ["a:1", "b:1", "c:0"]},
            "task": {"type": task_type, "index": index},
        }
        yield document, {"master": "localhost:0"}
        yield document, {}
    for given in ({}, {"model_dir": None}, {"model_dir": "/a"}, {"model_dir": "/b"}):
        yield {"model_dir": "/a"}, given


def ask(question):
    """Return the answer, or the error as [type, start of its message]."""
    try:
        return {"is": question()}
    except (ValueError, TypeError) as error:
        # Without the list of what there is: ours is another.
        start = re.split(
            r" in the cluster_spec|\. Allowed|\. model_dir|\n", str(error)
        )[0]
        return {"raises": [type(error).__name__, start]}


def main():
    """Ask everything and write the answers, one per line."""
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow.contrib.learn import RunConfig
    from tensorflow.contrib.learn.python.learn.estimators import run_config
    from tensorflow.python.util import tf_inspect

    def decode(arguments):
        text = arguments.get("session_config")
        if text is None:
            return arguments
        return dict(arguments, session_config=text_format.Parse(text, tf.ConfigProto()))

    def encode(proto):
        return proto and text_format.MessageToString(proto, as_one_line=True)

    def changes(config, base):
        pairs = [(n, getattr(config, n), getattr(base, n)) for n in ARGUMENT_PROPERTIES]
        return {name: new for name, new, old in pairs if new != old}

    def cluster_answer(document, arguments):
        os.environ["TF_CONFIG"] = json.dumps(document)
        try:
            config = RunConfig(**arguments)
        finally:
            del os.environ["TF_CONFIG"]
        assert config.cluster_spec.as_dict() == document.get("cluster", {})
        return [getattr(config, name) for name in CLUSTER_PROPERTIES]

    def argument_answer(arguments):
        config, default = RunConfig(**decode(arguments)), RunConfig()
        mine = list(arguments)
        return {
            "changes": changes(config, default),
            "tf_config": encode(config.tf_config),
            "session_config": encode(config.session_config),
            "same_uid": config.uid() == default.uid(),
            "same_uid_of_all": config.uid([]) == default.uid([]),
            "same_uid_without": config.uid(mine) == default.uid(mine),
        }

    def replaced_answer(replaced):
        config = RunConfig(num_cores=2, model_dir="/models")
        copy = config.replace(**decode(replaced))
        assert copy.tf_config == config.tf_config
        return changes(copy, config)

    signature = tf_inspect.getfullargspec(RunConfig.__init__)
    cluster_signature = tf_inspect.getfullargspec(run_config.ClusterConfig.__init__)
    defaults = [[n, getattr(RunConfig(), n)] for n in ARGUMENT_PROPERTIES]
    sections = {
        "signatures": [
            [signature.args[1:], list(signature.defaults)],
            [cluster_signature.args[1:], list(cluster_signature.defaults)],
        ],
        "clusters": [
            [document, given, ask(lambda d=document, g=given: cluster_answer(d, g))]
            for document, given in questions()
        ],
        "defaults": defaults,
        "arguments": [[a, ask(lambda a=a: argument_answer(a))] for a in ARGUMENTS],
        "replaced": [[r, ask(lambda r=r: replaced_answer(r))] for r in REPLACED],
    }
    path = os.path.splitext(os.path.abspath(__file__))[0].replace("record_", "")
    with open(path + ".json", "w") as file:
        file.write(f'{{"tensorflow": "{tf.__version__}"')
        for name, entries in sections.items():
            lines = ",\n  ".join(json.dumps(entry) for entry in entries)
            file.write(f',\n"{name}": [\n  {lines}\n]')
        file.write("}\n")


if __name__ == "__main__":
    main()
