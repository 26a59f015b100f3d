"""What makes TensorFlow compute an op by what surrounds it: XLA, mixed precision."""

import os
import re
from collections.abc import Mapping

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2


def reason(
    config: config_pb2.ConfigProto, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Return what says so, as in "is compiled by XLA (TF_XLA_FLAGS)"; else None."""
    if config.graph_options.optimizer_options.global_jit_level > 0:
        return "is compiled by XLA (global_jit_level)"
    if _compiles_all(environ):
        return "is compiled by XLA (TF_XLA_FLAGS)"
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


def _compiles_all(environ: Mapping[str, str]) -> bool:
    """Return whether TF_XLA_FLAGS let XLA compile any part of a graph."""
    flags = environ.get("TF_XLA_FLAGS", "")
    if flags and not flags.startswith("-"):  # the name of a file with the flags
        try:
            with open(flags) as file:
                flags = file.read()
        except OSError:
            return False  # TensorFlow ignores such a file too
    levels = re.findall(r"--tf_xla_auto_jit=(\S*)", flags)  # the last one counts
    return bool(levels) and re.fullmatch(r"0|-\d+", levels[-1]) is None
