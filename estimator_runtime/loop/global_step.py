"""The global step: what adds to it, what reads it, and how many steps are trained."""

import functools
from typing import Any

import tensorflow as tf

from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import Subgraph
from estimator_runtime.loop.plan import Plan
from estimator_runtime.tf_internals import graphs

_VALUE = "value"


class GlobalStep:
    """The global step of one session.

    Args:
        session: A session of this process.
        flush: Flushes denormals on the calling thread, where the variable is then read;
            None to read it on TensorFlow's threads.

    Attributes:
        variable: The variable; None if the graph has no global step.
        reads: Names of the tensors that hooks fetch for it. In the run of a step, they
            have its value from before or after the step, depending on the order in
            which the kernels run.
        early: Names of those of `reads` that need no op that may change the variable,
            so that the value from before the step is always one that they may have.
    """

    def __init__(
        self, session: tf.compat.v1.Session, flush: DenormalFlush | None
    ) -> None:
        graph = session.graph
        self.variable = variable_of(graph)
        self.reads = reads_of(graph, self.variable)
        self.early = [name for name in self.reads if not self._is_late(graph, name)]
        self._make_plan = functools.partial(
            Plan, session, {_VALUE: _element(self.variable)}, flush
        )

    @functools.cached_property
    def _plan(self) -> Plan:
        """The plan that reads the variable, compiled at its first use."""
        return self._make_plan()

    def _is_late(self, graph: tf.Graph, name: str) -> bool:
        """Return whether a tensor may need an op that changes the variable."""
        if not isinstance(self.variable, graphs.BaseResourceVariable):
            return True
        needed = Subgraph(graph, [graph.get_tensor_by_name(name).op]).ops
        users = ops.users(self.variable.handle)
        return any(op.name in needed and ops.may_write(op) for op in users)

    def trained(self) -> int:
        """Return the number of steps trained so far."""
        return int(self._plan.results(self._plan.run())[_VALUE])


def variable_of(graph: tf.Graph) -> Any:
    """Return the variable of a graph's global step; None if there is not one."""
    if len(graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_STEP)) != 1:
        return None
    return tf.compat.v1.train.get_global_step(graph)


def adds_one(step: Subgraph, variable: Any) -> bool:
    """Return whether a step adds 1 to a resource variable, and no other op changes it.

    The variable's initializer, ops that restore it from a checkpoint, and loops of
    steps do not count.

    Args:
        step: The part of the graph that is the step.
        variable: A variable of any kind, or None.
    """
    # Rule out reference variables, and those of a strategy, which has one for each
    # device.
    if not isinstance(variable, graphs.BaseResourceVariable):
        return False
    writing = [op for op in ops.users(variable.handle) if ops.may_write(op)]
    adding = [op for op in writing if op.name in step.ops]
    others = [op for op in writing if op not in (*adding, variable.initializer)]
    return (
        len(adding) == 1
        and all(map(ops.restores, others))
        and adding[0].type == "AssignAddVariableOp"
        # Else it is in a branch, and may not run at every step.
        and adding[0].inputs[0] is variable.handle
        and tf.get_static_value(adding[0].inputs[1]) == 1
    )


def reads_of(graph: tf.Graph, variable: Any) -> list[str]:
    """Return the names of the tensors that hooks fetch for a global step's variable."""
    element = _element(variable)
    if element is None:
        return []
    reads = graph.get_collection(graphs.GLOBAL_STEP_READ_KEY)
    return [element.name, *(tensor.name for tensor in reads)]


def _element(variable: Any) -> tf.Tensor | None:
    """Return the tensor that a fetch of a variable reads; None without a single one."""
    # A variable with several replicas would add ops to the graph when asked.
    if isinstance(variable, graphs.DistributedVariable):
        return None
    return getattr(variable, "_graph_element", None)
