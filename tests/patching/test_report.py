"""What a bug report says of the packages and the patches, in a process of its own."""

import platform

import tensorflow as tf

from estimator_runtime.patching.table import PATCHES
from estimator_runtime.tf_internals import versions

NEW = versions.parse(tf.__version__) >= (2, 16)


def test_every_difference_is_named_with_the_versions_it_was_found_with(run_python):
    program = "from estimator_runtime.patching.report import report; print(report())"
    done = run_python("-W", "ignore", "-c", program)
    assert done.returncode == 0, done.stderr
    packages, *lines = done.stdout.splitlines()
    found, state = {}, None
    for line in lines:
        if line.startswith("  "):
            found[line.strip().partition(": ")[0]] = state
        else:
            state = line.removesuffix(":")
    start = f"python {platform.python_version()}, tensorflow {tf.__version__}, tensorflow-estimator 2.15.0, "
    assert packages.startswith(start)
    assert sorted(found) == sorted(each.name for each in PATCHES)
    for state in set(found.values()):  # those of one together, in their order
        names = [name for name, its_state in found.items() if its_state == state]
        assert names == [each.name for each in PATCHES if each.name in names]
    on_new = "not scheduled" if NEW else "not needed"
    assert found["tf.estimator"] == on_new and found["the seam"] == "not scheduled"
