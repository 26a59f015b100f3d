"""What the parameter servers hold, looked at before a chief goes on with it."""

import tensorflow as tf

_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class NanSearch:
    """Finds NaN in variables, where they are: only the answers come here.

    Args:
        variables: Those that are trained: a NaN in any other may be meant.

    Attributes:
        graph: That of its operations: the program's own may be final, and has no need
            of them at any other time.
    """

    def __init__(self, variables):
        self.graph = tf.Graph()
        self._suspicions, self._proofs = {}, {}
        with self.graph.as_default():
            for variable in variables:
                if variable.dtype.base_dtype in _FLOATS:
                    self._add(variable)

    def _add(self, variable):
        name = variable.op.name
        with tf.device(variable.device):
            value = _read(variable)
            # A sum needs no memory, and has the NaN of any value; but also one of its
            # own, of infinities with both signs. The proof needs a byte for each value.
            self._suspicions[name] = tf.math.is_nan(tf.reduce_sum(value))
            self._proofs[name] = tf.reduce_any(tf.math.is_nan(value))

    def first(self, session):
        """Name the first variable that has a NaN; None if none has.

        Args:
            session: A session of `graph`, on the servers of the variables, in which
                all are initialized.
        """
        if not self._suspicions:
            return None  # an empty graph cannot be run
        suspicions = session.run(self._suspicions)
        suspects = {name: self._proofs[name] for name in suspicions if suspicions[name]}
        proofs = session.run(suspects) if suspects else {}
        return next((name for name, is_proven in proofs.items() if is_proven), None)


def _read(variable):
    """Read a variable of another graph: on a server, its name is what it goes by."""
    operation = variable.op
    versions = operation.graph.graph_def_versions
    definition = tf.compat.v1.GraphDef(node=[operation.node_def], versions=versions)
    (node,) = definition.node
    del node.input[:]
    node.attr.pop("_class", None)  # names others of its graph
    (held,) = tf.graph_util.import_graph_def(
        definition, return_elements=[operation.outputs[0].name], name=""
    )
    if held.dtype != tf.resource:
        return held
    return tf.raw_ops.ReadVariableOp(resource=held, dtype=variable.dtype.base_dtype)
