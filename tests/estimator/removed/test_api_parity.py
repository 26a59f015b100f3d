"""Every public name of TensorFlow 2.15.1's Estimators, on every TensorFlow.

estimator_names.txt lists them: what the API packages of the frozen package define, with
tf.estimator and tf.compat.v1.estimator for their roots, and what else of the API needs
Estimators, or was removed with them. (All names of both APIs were compared: 2.15.1's
against those of 2.21 with this runtime.)
"""

import operator
import pathlib

import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

NAMES = pathlib.Path(__file__).with_name("estimator_names.txt").read_text().split()


def exists(name):
    try:
        operator.attrgetter(name.removeprefix("tf."))(tf)
    except AttributeError:
        return False
    return True


def test_every_public_name_is_there():
    assert len(NAMES) == 172
    assert [name for name in NAMES if not exists(name)] == []


def test_each_class_is_one_object_under_the_second_versions_root_too():
    for name in NAMES:
        if name.startswith("tf.estimator."):
            own = operator.attrgetter(name.removeprefix("tf."))(tf)
            other = operator.attrgetter(name.removeprefix("tf."))(tf.compat.v2)
            assert own is other, name
