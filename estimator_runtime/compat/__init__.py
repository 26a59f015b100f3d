"""The frozen tensorflow-estimator on any TensorFlow: the only place that patches.

`install()` touches nothing by itself, but for what a failed import has left. It looks
at the installed versions, refuses what cannot work, and waits: each patch is applied
right after the import of the module it is about, so a program may still set
TensorFlow's environment variables before its own `import tensorflow`, and pays nothing
if it never comes to that.
"""

import os
import threading

from estimator_runtime.compat import children, keras, leftovers, patch, versions
from estimator_runtime.compat.patches import PATCHES

_lock = threading.RLock()
_installed = False


def install():
    """Make `tf.estimator` work in this process, and put the runtime behind it.

    Call it before or after `import tensorflow`; calling it again does nothing. The
    processes that this one starts get it too, if they run the same Python.

    Raises:
        CompatibilityError: If TensorFlow is missing or older than 2.15, if
            tensorflow-estimator 2.15.0 or (on TensorFlow >= 2.16) tf-keras is
            missing, if this process has already bound `tf.keras` to Keras 3, or if
            a patch has failed in it before.
    """
    global _installed
    patch.check()
    if _installed:
        return
    # Without the lock, which who imports it may need.
    versions.wait_for_import()
    with _lock:
        if _installed:
            return
        tensorflow = versions.check_installed()
        keras.choose_legacy(tensorflow)
        leftovers.drop()
        patch.schedule(
            [each for each in PATCHES if each.applies_to(tensorflow)],
            # Of a TensorFlow that nobody has tried, programs without Estimators keep
            # what they would have without this runtime.
            are_required=tensorflow <= versions.NEWEST_TESTED,
        )
        children.arm_environment(os.environ)
        _installed = True
