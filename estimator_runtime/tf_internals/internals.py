"""All names of this folder in one module."""

from estimator_runtime.tf_internals.graphs import *  # noqa: F403
from estimator_runtime.tf_internals.hooks import *  # noqa: F403
from estimator_runtime.tf_internals.savers import *  # noqa: F403
from estimator_runtime.tf_internals.sessions import *  # noqa: F403
