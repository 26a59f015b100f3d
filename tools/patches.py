"""Show which patches fail on the installed TensorFlow: `python tools/patches.py`.

On a TensorFlow that is newer than the tested ones, a patch that fails is skipped, so
one run names all of them. The exit status is 1 if there is any, or if TensorFlow or the
frozen package cannot be imported.
"""

import sys
import traceback

import estimator_runtime
from estimator_runtime.patching.report import report


def main() -> int:
    """Apply all patches, print the report, and return the exit status."""
    imported = True
    estimator_runtime.install(tf1=True)
    try:
        import tensorflow as tf

        print(tf.estimator.Estimator)  # Imports the frozen package.
    except Exception:  # noqa: BLE001 - the report says what led to it
        traceback.print_exc()
        imported = False
    found = report()
    print(found)
    failed = {k: v for k, v in found.patches.items() if v.startswith("failed")}
    for name, state in failed.items():
        print(f"NO LONGER APPLIES: {name} ({found.reasons[name]}): {state}")
    return 0 if imported and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
