"""The table of all patches.

Patches that wait for the same module are applied in the order of this table. Each entry
names its function as "module:function", relative to `estimator_runtime`. That module is
imported when the patch is due, because most of them import TensorFlow.
"""

import importlib
from collections.abc import Callable
from typing import Any

from estimator_runtime.patching.patch import Patch


def _late(reference: str) -> Callable[..., Any]:
    """Return a function that imports "module:function" and calls it."""
    module_name, function = reference.split(":")

    def call(*args: Any) -> Any:
        owner = importlib.import_module(f"estimator_runtime.{module_name}")
        return getattr(owner, function)(*args)

    return call


PATCHES = (
    Patch(
        name="spawned children",
        reason="a child of multiprocessing starts as a bare interpreter",
        after="multiprocessing.spawn",
        apply=_late("patching.injection.children:arm_spawn"),
    ),
    Patch(
        name="process name",
        reason="absl's app.run names every task of a cluster after the script",
        after="absl.command_name",
        apply=_late("patching.injection.process_name:keep"),
    ),
    Patch(
        name="estimator export names",
        reason="tf_export no longer knows the API name the frozen package exports to",
        after="tensorflow",
        since=(2, 16),
        apply=_late("estimator.removed.api:register_export_names"),
    ),
    Patch(
        name="estimator_training",
        reason="tensorflow.python.distribute.estimator_training was removed",
        after="tensorflow",
        since=(2, 16),
        apply=_late("estimator.removed.modules:provide_estimator_training"),
    ),
    Patch(
        name="TPU embedding stand-ins",
        reason="three TPU modules that the frozen package imports were removed",
        after="tensorflow",
        since=(2, 16),
        apply=_late("estimator.removed.modules:provide_tpu_stand_ins"),
    ),
    Patch(
        name="AsyncCheckpointSaverHook",
        reason="tensorflow.python.tpu.async_checkpoint was removed",
        after="tensorflow",
        since=(2, 16),
        apply=_late("estimator.removed.modules:provide_async_checkpoint"),
    ),
    Patch(
        name="tf.estimator",
        reason="TensorFlow's API no longer has the attribute",
        after="tensorflow",
        since=(2, 16),
        apply=_late("estimator.removed.api:provide_estimator"),
    ),
    Patch(
        name="CheckpointInputPipelineHook",
        reason="a hook of tf.data that takes an Estimator was removed with them",
        after="tensorflow",
        since=(2, 16),
        apply=_late("estimator.removed.input_pipeline:provide"),
    ),
    Patch(
        name="tensorflow.python.estimator",
        reason="old programs import it; 2.15 has only copies of it, newer have none",
        # `sys` is always imported, so the patch is applied at once. Another thread may
        # be importing TensorFlow, and a third may import the old name before that
        # import ends.
        after="sys",
        apply=_late("estimator.removed.old_names:provide"),
    ),
    Patch(
        name="copies in tensorflow.python.tpu",
        reason="five modules are copies of the frozen ones: patching them does nothing",
        after="tensorflow",
        until=(2, 16),
        apply=_late("estimator.removed.old_names:replace_tpu_copies"),
    ),
    Patch(
        name="TPUEstimator in tensorflow.python.tpu",
        reason="programs import it, and four modules beside it, by this name",
        after="tensorflow",
        since=(2, 16),
        apply=_late("estimator.removed.old_names:provide_tpu"),
    ),
    Patch(
        name="protobuf's float_format",
        reason="TensorFlow up to 2.20 passes an argument that protobuf 7 dropped",
        after="tensorflow",
        until=(2, 21),
        needed=_late("estimator.formats:lacks_float_format"),
        apply=_late("estimator.formats:drop_float_format"),
    ),
    Patch(
        name="deletions of checkpoints",
        reason="a Saver deletes a checkpoint that is being read",
        after="tensorflow",
        apply=_late("estimator.savers:patch_saver"),
    ),
    Patch(
        name="checkpoints read while they are written",
        reason="a hook that evaluates after a save would get the previous checkpoint",
        after="tensorflow",
        apply=_late("estimator.savers:patch_readers_and_savers"),
    ),
    Patch(
        name="sessions that restore nothing",
        reason="TensorFlow starts at step 0 if it does not find existing checkpoints",
        after="tensorflow",
        apply=_late("estimator.savers:patch_session_manager"),
    ),
    Patch(
        name="ProfilerHook in eager mode",
        reason="it opens an event file when it is made, which eager mode refuses",
        after="tensorflow",
        apply=_late("tf_internals.internals:open_event_files_in_eager_mode"),
    ),
    Patch(
        name="evaluator of a multi-worker strategy",
        reason="it checks the health of peers, has none, and cannot be copied then",
        after="tensorflow",
        apply=_late("estimator.strategies:skip_health_checks_of_evaluators"),
    ),
    Patch(
        name="evaluator outside the cluster",
        reason="a multi-worker strategy looks for its evaluator in the cluster",
        after="tensorflow",
        apply=_late("estimator.strategies:allow_evaluators_outside_cluster"),
    ),
    Patch(
        name="ps of a multi-worker strategy",
        reason="a ps that holds no variables fails at each start, and its job with it",
        after="tensorflow",
        apply=_late("estimator.strategies:refuse_parameter_servers"),
    ),
    Patch(
        name="servers and the proxy",
        reason="gRPC asks the proxy of http_proxy for 127.0.0.1, and waits for ever",
        after="tensorflow",
        apply=_late("tf_internals.internals:connect_without_proxy"),
    ),
    Patch(
        name="SIGTERM of a multi-worker strategy",
        reason="its coordination service ignores the signal, even when nothing trains",
        after="tensorflow",
        apply=_late("estimator.strategies:restore_signal_handler"),
    ),
    Patch(
        name="tf-slim",
        reason="its functions use private names that TensorFlow has moved since",
        after="tf_slim",
        apply=_late("estimator.removed.libraries:provide_moved_names"),
    ),
    Patch(
        name="tensorflow-gan",
        reason="its functions call inspect.getargspec, which Python 3.11 removed",
        after="tensorflow_gan",
        apply=_late("tf_internals.former_names:restore_getargspec"),
    ),
    Patch(
        name="adanet",
        reason="it imports a private module that TensorFlow has moved since",
        after="adanet",
        apply=_late("estimator.removed.libraries:provide_tracking"),
    ),
    Patch(
        name="Keras loaders",
        reason="TensorFlow's Keras loaders recurse and hang when threads race to them",
        after="tensorflow_estimator",
        since=(2, 16),
        apply=_late("estimator.keras.legacy:resolve_loaders"),
    ),
    Patch(
        name="tf_random_seed",
        reason="initializers of tf.compat.v1.layers ignore it: no two runs are equal",
        after="tensorflow_estimator",
        apply=_late("estimator.seeds:patch_estimator"),
    ),
    Patch(
        name="new-style optimizers",
        reason="canned Estimators refuse the optimizers of tf.keras.optimizers",
        after="tensorflow_estimator",
        apply=_late("estimator.optimizers:patch_canned"),
    ),
    Patch(
        name="models of Keras 3",
        reason="model_to_estimator fails on a private attribute, and does not say why",
        after="tensorflow_estimator",
        since=(2, 16),
        apply=_late("estimator.keras.keras3:patch_model_to_estimator"),
    ),
    Patch(
        name="model_fns with Keras 3",
        reason="they train once, and then cannot restore their own checkpoint",
        after="tensorflow_estimator",
        since=(2, 16),
        apply=_late("estimator.keras.keras3:patch_model_fn"),
    ),
    Patch(
        name="strings of pandas 3",
        reason="pandas_input_fn passes TensorFlow a string type that it does not know",
        after="tensorflow_estimator",
        needed=_late("estimator.formats:is_pandas_3"),
        apply=_late("estimator.formats:patch_queues"),
    ),
    Patch(
        name="training options",
        reason="the frozen Estimator passes only TensorFlow's arguments to its session",
        after="tensorflow_estimator",
        apply=_late("estimator.options:patch_estimator"),
    ),
    Patch(
        name="graphs that are reused",
        reason="each evaluation and prediction builds its graph and session anew",
        after="tensorflow_estimator",
        apply=_late("estimator.reuse.graphs:patch_estimator"),
    ),
    Patch(
        name="graphs that are exported again",
        reason="each export builds its graph and session anew",
        after="tensorflow_estimator",
        apply=_late("estimator.reuse.exports:patch_estimator"),
    ),
    Patch(
        name="evaluations during a stop",
        reason="a training that has to stop would first finish its evaluation",
        after="tensorflow_estimator",
        apply=_late("estimator.evaluation:patch_estimator"),
    ),
    Patch(
        name="sessions of evaluations",
        reason="closing one may wait for a thread that tunes its input, for a minute",
        after="tensorflow_estimator",
        apply=_late("estimator.evaluation:patch_sessions"),
    ),
    Patch(
        name="verified checkpoints",
        reason="Estimator.train takes a lost or damaged checkpoint for step 0",
        after="tensorflow_estimator",
        apply=_late("estimator.checkpoints:patch_train"),
    ),
    Patch(
        name="readers of checkpoints",
        reason="a Saver deletes the checkpoint that an Estimator evaluates or exports",
        after="tensorflow_estimator",
        apply=_late("estimator.checkpoints:patch_readers"),
    ),
    Patch(
        name="recovery wait",
        reason="a worker checks only every 30 s whether the chief is ready",
        after="tensorflow_estimator",
        apply=_late("estimator.options:patch_session_manager"),
    ),
    Patch(
        name="timers of hooks",
        reason="no checkpoint is due for a day after the clock is set back by a day",
        after="tensorflow_estimator",
        apply=_late("tf_internals.internals:use_monotonic_time"),
    ),
    Patch(
        name="the seam",
        reason="Estimators train through this runtime's session and configuration",
        after="tensorflow_estimator",
        apply=_late("estimator.seam:connect"),
    ),
)
