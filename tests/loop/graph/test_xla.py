"""Settings with which TensorFlow computes an op by what surrounds it."""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from estimator_runtime.loop.graph import xla

FLAGS = "may be compiled by XLA (TF_XLA_FLAGS)"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--tf_xla_auto_jit=2", FLAGS),
        ("--tf_xla_cpu_global_jit --tf_xla_auto_jit=single-gpu(1)", FLAGS),
        ("--tf_xla_auto_jit=fusible", FLAGS),
        ("--tf_xla_clustering_debug", None),
        ("a file with the flags", FLAGS),
        ("", None),
    ],
)
def test_xla_may_compile_what_its_flags_say(flags, reason):
    config = config_pb2.ConfigProto()
    assert xla.reason(config, {"TF_XLA_FLAGS": flags}) == reason


def test_xla_compiles_what_the_session_config_says():
    config = config_pb2.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = (
        tf.compat.v1.OptimizerOptions.ON_1
    )
    assert xla.reason(config, {}) == "is compiled by XLA (global_jit_level)"


def test_mixed_precision_is_named_by_its_setting():
    config = config_pb2.ConfigProto()
    assert xla.mixed_precision(config) is None
    on = rewriter_config_pb2.RewriterConfig.ON
    config.graph_options.rewrite_options.auto_mixed_precision_mkl = on
    assert xla.mixed_precision(config) == "auto_mixed_precision_mkl"
