"""Errors of a copy of a step, in a loop or packed, told as those of the step itself."""

import re

import tensorflow as tf

from estimator_runtime.loop.graph.subgraph import Subgraph
from estimator_runtime.tf_internals import graphs

# Of the copies. Those in a function, such as a loop's body, may have none.
_SCOPE = re.compile(r"(fused_steps|packed_step)(_\d+)?/")
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")


def of_single_step(error: BaseException, step: Subgraph) -> BaseException:
    """Return the error that a single step would have raised.

    TensorFlow names an op of the copy by the name of its scope, such as the loop's, and
    the name of the program's op.

    Args:
        error: What a call of the session has raised.
        step: The part of the graph that is the step.

    Returns:
        An error of the same class that names the program's op and where the program
        created it; `error` itself if no copied op has caused it.
    """
    raw = error.__context__  # does not name where ops were created
    if not isinstance(error, tf.errors.OpError) or not isinstance(
        raw, tf.errors.OpError
    ):
        return error
    found = [_name_in(step, name) for name in _NODE.findall(raw.message)]
    names = [name for name in found if name is not None]
    if not names:
        return error
    message = _NODE.sub(
        lambda match: f"{{{{node {_name_in(step, match[1]) or match[1]}}}}}",
        raw.message,
    )
    op = step.graph.get_operation_by_name(names[0])
    return type(error)(
        op.node_def, op, graphs.interpolate_graph(message, step.graph)
    ).with_traceback(error.__traceback__)


def _name_in(step: Subgraph, name: str) -> str | None:
    """Return the name of the program's op that an op of the loop is a copy of.

    A packed step also has copies of ops beside the step, which hooks fetch.
    """
    if name in step.ops:
        return name
    if not _SCOPE.match(name) and _is_op(step.graph, name):
        return None  # no copy
    parts = name.split("/")
    suffixes = ("/".join(parts[i:]) for i in range(1, len(parts)))
    return next((each for each in suffixes if _is_op(step.graph, each)), None)


def _is_op(graph: tf.Graph, name: str) -> bool:
    try:
        graph.get_operation_by_name(name)
    except KeyError:
        return False
    return True
