"""How fast the runtime is, beside TensorFlow's own loops; see README.md."""

import estimator_runtime

# As a program would: before TensorFlow, which the modules of this package import.
estimator_runtime.install()
