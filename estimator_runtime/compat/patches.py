"""All patches, in the order they are applied when they wait for the same module.

Each entry names a function as "module:function" of this package, imported when the
patch is due: most of them need TensorFlow.
"""

import importlib

from estimator_runtime.compat.patch import Patch


def _late(reference):
    module_name, function = reference.split(":")

    def apply(module):
        owner = importlib.import_module(f"estimator_runtime.compat.{module_name}")
        getattr(owner, function)(module)

    return apply


PATCHES = (
    Patch(
        name="estimator export names",
        reason="tf_export no longer knows the API name the frozen package exports to",
        after="tensorflow",
        since=(2, 16),
        apply=_late("export_names:register"),
    ),
    Patch(
        name="estimator_training",
        reason="tensorflow.python.distribute.estimator_training was removed",
        after="tensorflow",
        since=(2, 16),
        apply=_late("removed_modules:provide_estimator_training"),
    ),
    Patch(
        name="TPU embedding stand-ins",
        reason="three TPU modules that the frozen package imports were removed",
        after="tensorflow",
        since=(2, 16),
        apply=_late("removed_modules:provide_tpu_stand_ins"),
    ),
    Patch(
        name="tf.estimator",
        reason="TensorFlow's API no longer has the attribute",
        after="tensorflow",
        since=(2, 16),
        apply=_late("api:provide_estimator"),
    ),
    Patch(
        name="Keras loaders",
        reason="TensorFlow's Keras loaders recurse and hang when threads race to them",
        after="tensorflow_estimator",
        since=(2, 16),
        apply=_late("keras:resolve_loaders"),
    ),
    Patch(
        name="tf_random_seed",
        reason="initializers of tf.compat.v1.layers ignore it: no two runs are equal",
        after="tensorflow_estimator",
        apply=_late("seeds:patch_estimator"),
    ),
    Patch(
        name="training options",
        reason="the frozen Estimator passes only TensorFlow's arguments to its session",
        after="tensorflow_estimator",
        apply=_late("carrier:patch_estimator"),
    ),
    Patch(
        name="the seam",
        reason="Estimators train through this runtime's session and configuration",
        after="tensorflow_estimator",
        apply=_late("seam:connect"),
    ),
)
