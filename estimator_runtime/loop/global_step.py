"""The global step: who adds to it, what reads it, and how many steps are trained."""

import functools

import tensorflow as tf
from tensorflow.python.distribute import values as distributed
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.training import training_util

from estimator_runtime.loop import writers
from estimator_runtime.loop.plan import Plan

_VALUE = "value"


class GlobalStep:
    """The global step of one session.

    Args:
        session: `tf.compat.v1.Session` of this process.
        flush: `DenormalFlush` for the calling thread, or None.

    Attributes:
        variable: Its variable; None if the graph has no global step.
        reads: Names of the tensors that hooks fetch for it. In the run of a step, they
            give its value from before the step or after it, as the kernels fall.
    """

    def __init__(self, session, flush):
        graph = session.graph
        self.variable = None
        if len(graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_STEP)) == 1:
            self.variable = training_util.get_global_step(graph)
        self.reads = reads_of(graph, self.variable)
        self._make_plan = functools.partial(
            Plan, session, {_VALUE: _element(self.variable)}, flush
        )

    @functools.cached_property
    def _plan(self):
        return self._make_plan()

    def trained(self):
        """Give the number of steps trained so far."""
        return int(self._plan.results(self._plan.on_caller())[_VALUE])


def adds_one(step, variable):
    """Tell whether `step`, a Part, adds 1 to a resource variable and nothing else does.

    Its initializer, what restores it from a checkpoint, and loops of steps, do not
    count.
    """
    # Not a reference variable, nor a strategy's, which has one for each device.
    if not isinstance(variable, resource_variable_ops.BaseResourceVariable):
        return False
    writing = [op for op in variable.handle.consumers() if writers.may_write(op)]
    adding = [op for op in writing if op.name in step.ops]
    others = [op for op in writing if op not in (*adding, variable.initializer)]
    return (
        len(adding) == 1
        and all(map(writers.restores, others))
        and adding[0].type == "AssignAddVariableOp"
        and tf.get_static_value(adding[0].inputs[1]) == 1
    )


def reads_of(graph, variable):
    """Give the names of the tensors that hooks fetch for a global step's variable."""
    element = _element(variable)
    if element is None:
        return []
    reads = graph.get_collection(training_util.GLOBAL_STEP_READ_KEY)
    return [element.name, *(tensor.name for tensor in reads)]


def _element(variable):
    """Give the tensor that stands for a variable; None if there is no single one."""
    # One of several replicas would add ops to the graph when asked.
    if isinstance(variable, distributed.DistributedVariable):
        return None
    return getattr(variable, "_graph_element", None)
