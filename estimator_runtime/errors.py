"""The exceptions that this package raises, all with one base class.

Each class also derives from the built-in exception (or the one that TensorFlow raises)
for the same mistake, so that code written for `tf.estimator` still catches it.
"""


class EstimatorRuntimeError(Exception):
    """The base class of all exceptions of this package."""


class ConfigError(EstimatorRuntimeError, ValueError):
    """A setting has a value that cannot be used: TF_CONFIG, RunConfig, a flag."""


class ConfigTypeError(ConfigError, TypeError):
    """A setting has a value of the wrong type, where TensorFlow raises TypeError."""


class ConfigKeyError(ConfigError, KeyError):
    """A setting names something unknown, where TensorFlow raises KeyError."""

    __str__ = Exception.__str__  # A KeyError shows its message quoted.


class UsageError(EstimatorRuntimeError):
    """The command line requests something impossible; the exit status is 2."""


class CompatibilityError(EstimatorRuntimeError, ImportError):
    """The installed packages, or what they have loaded, cannot run Estimators."""


class CheckpointError(EstimatorRuntimeError, RuntimeError):
    """A checkpoint cannot be written, or no checkpoint of a folder can be used."""


class LaunchError(EstimatorRuntimeError, RuntimeError):
    """The tasks of a job cannot be started."""


class PeerTimeoutError(EstimatorRuntimeError, TimeoutError):
    """Another task of the cluster was not there in time."""


class PredictorInputError(EstimatorRuntimeError, ValueError):
    """A predictor is called with something else than its inputs."""


class PredictorClosedError(EstimatorRuntimeError, RuntimeError):
    """A predictor is used after it has been closed."""
