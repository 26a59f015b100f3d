"""Every error this package raises on purpose, under one root.

Each class is also the built-in exception (or the one TensorFlow raises) for the
same mistake, so that code written against `tf.estimator` still catches it.
"""


class EstimatorRuntimeError(Exception):
    """Root of all errors of this package; catch it to catch them all."""


class ConfigError(EstimatorRuntimeError, ValueError):
    """A setting has a value that cannot be used: TF_CONFIG, RunConfig, a flag."""


class ConfigTypeError(ConfigError, TypeError):
    """A setting has a value of the wrong type, where TensorFlow raises TypeError."""


class UsageError(EstimatorRuntimeError):
    """The command line asks for something that cannot be done; exit status 2."""


class CompatibilityError(EstimatorRuntimeError, ImportError):
    """The installed packages, or what they already loaded, cannot run Estimators."""


class CheckpointError(EstimatorRuntimeError, RuntimeError):
    """A checkpoint cannot be written, or none of those in a folder can be used."""


class LaunchError(EstimatorRuntimeError, RuntimeError):
    """A job's tasks cannot be started."""


class PeerTimeoutError(EstimatorRuntimeError, TimeoutError):
    """Another task of the cluster was not there in time."""
