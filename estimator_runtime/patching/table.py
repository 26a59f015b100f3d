"""The table of all patches.

Patches that wait for the same module are applied in the order of this table. Each entry
names its function as "module:function", relative to `estimator_runtime`. These
references are the only ones that lead to higher layers. They are resolved when they are
used, because most of the modules import TensorFlow.
"""

import importlib
from collections.abc import Callable
from typing import Any

from estimator_runtime.patching.patch import Patch


def late(reference: str) -> Callable[..., Any]:
    """Return a function that imports "module:function" and calls it."""
    module_name, function = reference.split(":")

    def call(*args: Any, **kwargs: Any) -> Any:
        owner = importlib.import_module(f"estimator_runtime.{module_name}")
        return getattr(owner, function)(*args, **kwargs)

    return call


PATCHES = (
    Patch(
        name="tf.estimator",
        reason="TensorFlow 2.16 removed it, and what the frozen package needs of it",
        after="tensorflow",
        since=(2, 16),
        apply=late("estimator.removed.modules:restore"),
    ),
    Patch(
        name="old names",
        reason="programs import Estimators from tensorflow.python.{estimator,tpu}",
        # `sys` is always imported, so the patch is applied at once. Another thread may
        # be importing TensorFlow, and a third may import the old name before that
        # import ends.
        after="sys",
        apply=late("estimator.removed.old_names:provide"),
    ),
    Patch(
        name="protobuf's float_format",
        reason="TensorFlow up to 2.20 passes an argument that protobuf 7 dropped",
        after="tensorflow",
        until=(2, 21),
        needed=late("estimator.formats:lacks_float_format"),
        apply=late("estimator.formats:drop_float_format"),
    ),
    Patch(
        name="checkpoints",
        reason="Savers delete checkpoints that are read, and readers miss those that "
        "are being written",
        after="tensorflow",
        apply=late("estimator.savers:patch_readers_and_savers"),
    ),
    Patch(
        name="SessionManager",
        reason="it starts at step 0 if it does not find existing checkpoints, and "
        "checks only every 30 s whether the chief is ready",
        after="tensorflow",
        apply=late("estimator.savers:patch_session_manager"),
    ),
    Patch(
        name="hooks",
        reason="their timers stop when the clock is set back, and ProfilerHook fails "
        "in eager mode",
        after="tensorflow",
        apply=late("tf_internals.hooks:patch"),
    ),
    Patch(
        name="multi-worker strategies",
        reason="they fail in evaluators and with sparse gradients of changing length, "
        "ignore SIGTERM, and train without their ps",
        after="tensorflow",
        apply=late("estimator.strategies:patch_multi_worker"),
    ),
    Patch(
        name="servers and the proxy",
        reason="gRPC asks the proxy of http_proxy for 127.0.0.1, and waits for ever",
        after="tensorflow",
        apply=late("tf_internals.sessions:connect_without_proxy"),
    ),
    Patch(
        name="tf-slim",
        reason="its functions use private names that TensorFlow has moved since",
        after="tf_slim",
        apply=late("tf_internals.former_names:restore_private_names"),
    ),
    Patch(
        name="layers of tf-slim",
        reason="TensorFlow's own batch normalization looks for tf-keras elsewhere",
        after="tf_slim",
        apply=late("estimator.removed.libraries:provide_batch_normalization"),
    ),
    Patch(
        name="tensorflow-gan",
        reason="its functions call inspect.getargspec, which Python 3.11 removed",
        after="tensorflow_gan",
        apply=late("tf_internals.former_names:restore_getargspec"),
    ),
    Patch(
        name="adanet",
        reason="it imports a private module that TensorFlow has moved since",
        after="adanet",
        apply=late("estimator.removed.libraries:provide_tracking"),
    ),
    Patch(
        name="Keras loaders",
        reason="TensorFlow's Keras loaders recurse and hang when threads race to them",
        after="tensorflow_estimator",
        since=(2, 16),
        apply=late("tf_internals.legacy_keras:resolve_loaders"),
    ),
    Patch(
        name="Estimator",
        reason="it takes damaged checkpoints for step 0, ignores tf_random_seed in "
        "layers, and knows neither this runtime's options nor signals",
        after="tensorflow_estimator",
        apply=late("estimator.estimator:patch"),
    ),
    Patch(
        name="evaluations of a local training",
        reason="a training that has to stop would first finish its evaluation",
        after="tensorflow_estimator",
        apply=late("estimator.evaluation:patch_listener"),
    ),
    Patch(
        name="sessions of evaluations",
        reason="closing one may wait for a thread that tunes its input, for a minute",
        after="tensorflow_estimator",
        apply=late("estimator.evaluation:patch_sessions"),
    ),
    Patch(
        name="new-style optimizers",
        reason="canned Estimators refuse the optimizers of tf.keras.optimizers",
        after="tensorflow_estimator",
        apply=late("estimator.optimizers:patch_canned"),
    ),
    Patch(
        name="layers of canned Estimators",
        reason="AutoGraph compiles them anew in each process, for the same graph",
        after="tensorflow_estimator",
        apply=late("estimator.keras:keep_canned_layers"),
    ),
    Patch(
        name="models of Keras 3",
        reason="model_to_estimator fails on a private attribute, and does not say why",
        after="tensorflow_estimator",
        since=(2, 16),
        apply=late("estimator.keras:patch_model_to_estimator"),
    ),
    Patch(
        name="strings of pandas 3",
        reason="pandas_input_fn passes TensorFlow a string type that it does not know",
        after="tensorflow_estimator",
        needed=late("estimator.formats:is_pandas_3"),
        apply=late("estimator.formats:patch_queues"),
    ),
    Patch(
        name="the seam",
        reason="Estimators train through this runtime's session and configuration",
        after="tensorflow_estimator",
        apply=late("estimator.seam:connect"),
    ),
)


# That of `estimator-runtime run` and of TensorFlow 1 mode.
PROGRAM_SESSION = Patch(
    name="MonitoredTrainingSession of the program",
    reason="programs without Estimators get no checkpoint when told to stop",
    after="tensorflow",
    apply=late("estimator.program_session:use_runtime_session"),
)


# Those of TensorFlow 1 mode, after the others of the same module.
TF1_PATCHES = (
    Patch(
        name="names of older Pythons",
        reason="TensorFlow 1's programs use names that Python 3.8 to 3.12 removed",
        after="sys",
        apply=late("tf1.moved:restore_python_names"),
    ),
    Patch(
        name="names of older NumPys",
        reason="TensorFlow 1's programs use names that NumPy 1.24 and 2.0 removed",
        after="numpy",
        apply=late("tf1.moved:restore_numpy_names"),
    ),
    Patch(
        name="TensorFlow 1 behaviour",
        reason="TensorFlow 1's programs build graphs, with its datasets and shapes",
        after="tensorflow",
        apply=late("tf1.moved:use_version_1"),
    ),
    Patch(
        name="TensorFlow 1's private names",
        reason="programs use names of private modules that TensorFlow 2 has moved",
        after="tensorflow",
        apply=late("tf_internals.former_names:restore_private_names"),
    ),
    PROGRAM_SESSION,
)
turn_on_tf1 = late("tf1.mode:turn_on")
