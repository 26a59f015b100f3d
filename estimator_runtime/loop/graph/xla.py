"""Settings under which TensorFlow fuses ops."""

import os
from collections.abc import Mapping

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2


def reason(
    config: config_pb2.ConfigProto, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Return the setting, as in "may be compiled by XLA (TF_XLA_FLAGS)", or None."""
    if config.graph_options.optimizer_options.global_jit_level > 0:
        return "is compiled by XLA (global_jit_level)"
    flags = environ.get("TF_XLA_FLAGS", "")
    is_file = flags != "" and not flags.startswith("-")
    if is_file or "--tf_xla_auto_jit" in flags:
        return "may be compiled by XLA (TF_XLA_FLAGS)"
    return None


def mixed_precision(config: config_pb2.ConfigProto) -> str | None:
    """Return the setting that turns automatic mixed precision on, or None."""
    rewrites = config.graph_options.rewrite_options
    on = (
        rewriter_config_pb2.RewriterConfig.ON,
        rewriter_config_pb2.RewriterConfig.AGGRESSIVE,
    )
    for field in rewrites.DESCRIPTOR.fields:
        name: str = field.name
        if name.startswith("auto_mixed_precision") and getattr(rewrites, name) in on:
            return name
    return None
