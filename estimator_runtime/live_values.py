"""What the parameter servers hold, looked at before a chief goes on with it."""

import tensorflow as tf

_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class NanSearch:
    """Finds NaN in variables, where they are: only the answers come here.

    It adds its operations to the graph of the variables, which must not be final yet.

    Args:
        variables: Those that are trained: a NaN in any other may be meant.

    Attributes:
        graph: The graph of its operations.
    """

    def __init__(self, variables):
        self.graph = tf.compat.v1.get_default_graph()
        self._suspicions, self._proofs = {}, {}
        with (
            self.graph.control_dependencies(None),
            tf.compat.v1.name_scope("estimator_runtime_nan/"),
        ):
            for variable in variables:
                if variable.dtype.base_dtype in _FLOATS:
                    self._add(variable)

    def _add(self, variable):
        name = variable.op.name
        with tf.device(variable.device):
            # Not the value that a worker may have cached.
            value = variable.read_value()
            # A sum needs no memory, and has the NaN of any value; but also one of its
            # own, of infinities with both signs. The proof needs a byte for each value.
            self._suspicions[name] = tf.math.is_nan(tf.reduce_sum(value))
            self._proofs[name] = tf.reduce_any(tf.math.is_nan(value))

    def first(self, session):
        """Name the first variable that has a NaN; None if none has.

        Args:
            session: A session of the graph, in which all variables are initialized.
        """
        suspicions = session.run(self._suspicions)
        suspects = {name: self._proofs[name] for name in suspicions if suspicions[name]}
        proofs = session.run(suspects) if suspects else {}
        return next((name for name, is_proven in proofs.items() if is_proven), None)
