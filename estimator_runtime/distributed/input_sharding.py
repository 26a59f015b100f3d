"""The input of the tasks of a parameter-server job: one shard each, or the same in all.

Under ParameterServer training, which has no distribution strategy, each task calls
input_fn and reads what it returns. If nothing in the input differs by task, all of
them train on the same batches: with a seed (`tf_random_seed`) even shuffled ones.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_runtime.tf_internals import op_kinds

_Nodes = Mapping[str, Any]  # `NodeDef` by name

_TRAINERS = ("chief", "master", "worker")


def shard(dataset: Any, config: Any) -> Any:
    """Return the part of a dataset that this task trains on.

    Call it in input_fn before `shuffle` and `batch`. Task i of the n tasks that train
    gets each n-th element, from the i-th on. The chief is the first of them.

    Args:
        dataset: The `tf.data.Dataset` of all examples, in the same order in each task.
        config: The `RunConfig` of the Estimator.

    Returns:
        A dataset. It is `dataset` itself in a process without a cluster, in the
        evaluator and in a ps, and with a strategy in `train_distribute`, which
        distributes the input itself.
    """
    is_trainer = config.task_type in _TRAINERS
    count = config.num_worker_replicas
    if not is_trainer or count < 2 or config.train_distribute is not None:
        return dataset
    return dataset.shard(count, config.global_id_in_cluster)


def fingerprint(graph: tf.Graph) -> str | None:
    """Return a text that is equal in two tasks if they read the same batches.

    Returns:
        The fingerprint of all datasets of the graph, or None if there is no dataset, if
        one is shuffled without a seed, or if it calls Python, which may do anything.
    """
    operations = graph.get_operations()
    pending = [each for each in operations if op_kinds.of(each.type).starts_iterator]
    if not pending:
        return None
    library = {f.signature.name: f for f in graph.as_graph_def().library.function}
    found: dict[str, tf.Operation] = {}
    while pending:
        operation = pending.pop()
        if operation.name not in found:
            found[operation.name] = operation
            pending += [each.op for each in operation.inputs]
    graph_nodes = {name: found[name].node_def for name in sorted(found)}
    digest = hashlib.sha256()
    for nodes in (graph_nodes, *_functions_called(graph_nodes, library)):
        for node in nodes.values():
            if op_kinds.of(node.op).is_opaque_input or _is_shuffled_anew(node, nodes):
                return None
            digest.update(f"{node.op} {list(node.input)}".encode())
            for key, value in sorted(node.attr.items()):
                # Functions have a number in their name, which counts all functions.
                if not (value.HasField("func") or value.list.func):
                    digest.update(key.encode() + value.SerializeToString())
    return digest.hexdigest()


def _functions_called(nodes: _Nodes, library: Mapping[str, Any]) -> Iterator[_Nodes]:
    """Yield the nodes of each function that some nodes call, directly or not."""
    pending, seen = list(nodes.values()), set()
    while pending:
        for value in pending.pop().attr.values():
            for function in (value.func, *value.list.func):
                if function.name in library and function.name not in seen:
                    seen.add(function.name)
                    called = library[function.name].node_def
                    pending += called
                    yield {each.name: each for each in called}


def _is_shuffled_anew(node: Any, nodes: _Nodes) -> bool:
    """Return whether a node shuffles in another order in each process.

    TensorFlow stands for "no seed" with two zeros.
    """
    if "Shuffle" not in node.op:
        return False
    inputs = [nodes.get(each.partition(":")[0]) for each in node.input]
    seeds = [
        tf.make_ndarray(each.attr["value"].tensor)
        for each in inputs
        if each is not None
        and each.op == "Const"
        and each.name.rpartition("/")[2].startswith("seed")
    ]
    return not any(seeds)
