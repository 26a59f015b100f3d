"""Small variables that Adam trains are updated by ops, with the bits of its kernel."""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

import estimator_runtime as er
from estimator_runtime.config import options
from estimator_runtime.loop.fusion import adam as adam_ops

tf1 = tf.compat.v1
STEPS = 60
ON = rewriter_config_pb2.RewriterConfig.ON


def adam(**arguments):
    return tf1.train.AdamOptimizer(0.003, **arguments)


class Decaying(tf1.train.AdamOptimizer):
    """Adam that also takes a part of each variable away, in the same step."""

    def minimize(self, loss, step):
        with tf.control_dependencies([super().minimize(loss, step)]):
            return tf.group([v.assign_sub(v / 9) for v in tf1.trainable_variables()])


def trained(steps_per_run, shapes, make_optimizer, config=None):
    """Train a variable of each shape.

    Returns:
        What the session leaves in all variables, by name, and how many ops of each kind
        that updates variables are in the functions of the graph.
    """
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(7)
        step = tf1.train.get_or_create_global_step()
        losses = []
        for i, shape in enumerate(shapes):
            weights = tf1.get_variable(
                f"w{i}", shape, initializer=tf1.random_normal_initializer()
            )
            seed = tf.stack([i, tf.cast(step.read_value(), tf.int32)])
            power = 10.0 ** tf.random.stateless_uniform(shape, seed, -30, 3)
            noise = tf.random.stateless_normal(shape, seed + 9) * power
            losses.append(tf.reduce_sum(noise * weights * weights))
        train_op = make_optimizer().minimize(tf.add_n(losses), step)
        with (
            options.use(options.TrainingOptions(steps_per_run=steps_per_run)),
            er.MonitoredTrainingSession(
                hooks=[tf1.train.StopAtStepHook(last_step=STEPS)], config=config
            ) as session,
        ):
            raw = session._tf_sess()
            while not session.should_stop():
                session.run(train_op)
            names = tf1.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
            values = {v.name: raw.run(v).tobytes() for v in names}
        functions = graph.as_graph_def().library.function
    kinds = [node.op for function in functions for node in function.node_def]
    return values, {
        kind: kinds.count(kind) for kind in ("ResourceApplyAdam", "RealDiv")
    }


def test_updates_of_small_variables_are_ops_with_the_bits_of_the_kernel():
    def locking():
        return adam(use_locking=True)

    shapes = [[511], [512], [61, 37], [16_384], [16_385]]
    single, _ = trained(1, shapes, locking)
    fused, kinds = trained(20, shapes, locking)
    assert fused == single
    # Two divisions for each of the three.
    assert kinds == {"ResourceApplyAdam": 2, "RealDiv": 6}


@pytest.mark.parametrize(
    "optimizer, config",
    [
        (lambda: adam(epsilon=0.0), None),
        (Decaying, None),
        (
            adam,
            config_pb2.ConfigProto(
                graph_options=config_pb2.GraphOptions(
                    rewrite_options=rewriter_config_pb2.RewriterConfig(
                        auto_mixed_precision_mkl=ON
                    )
                )
            ),
        ),
    ],
    ids=["no epsilon", "two updates", "mixed precision"],
)
def test_updates_that_ops_might_not_equal_keep_their_kernel(optimizer, config):
    _, kinds = trained(20, [[600]], optimizer, config)
    assert kinds["ResourceApplyAdam"] == 1


def test_a_kernel_that_the_ops_do_not_equal_to_the_bit_is_kept(monkeypatch):
    compute = adam_ops._Update._compute

    def rounded_twice(self, kind, *inputs):
        if kind == "RealDiv":
            kind, inputs = "Mul", (inputs[0], compute(self, "Reciprocal", inputs[1]))
        return compute(self, kind, *inputs)

    monkeypatch.setattr(adam_ops._Update, "_compute", rounded_twice)
    # On the first use of a process they are compared.
    monkeypatch.setattr(adam_ops, "_is_exact", adam_ops._is_exact.__wrapped__)
    _, kinds = trained(20, [[600]], adam)
    assert kinds == {"ResourceApplyAdam": 1, "RealDiv": 0}


def test_a_rate_that_changes_is_that_of_the_step():
    def decayed():
        step = tf1.train.get_global_step()
        return tf1.train.AdamOptimizer(tf1.train.exponential_decay(0.1, step, 7, 0.5))

    single, _ = trained(1, [[600], [700]], decayed)
    fused, kinds = trained(20, [[600], [700]], decayed)
    assert fused == single
    assert kinds["ResourceApplyAdam"] == 0
