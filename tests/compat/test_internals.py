"""TensorFlow's private names that this runtime uses are there, on each TensorFlow."""

import importlib

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.compat import internals
from estimator_runtime.loop import hook_schedule

estimator_runtime.install()


def test_each_name_stands_for_something():
    names = [name for name in vars(internals) if not name.startswith("_")]
    assert {"FetchHandler", "StockHookedSession", "while_loop"} <= set(names)
    assert [name for name in names if getattr(internals, name) is None] == []


@pytest.mark.parametrize("name", hook_schedule._BY_CLASS)
def test_each_hook_that_is_known_by_its_name_is_there(name):
    module, _, cls = name.rpartition(".")
    found = getattr(importlib.import_module(module), cls)
    assert issubclass(found, tf.compat.v1.train.SessionRunHook)
    assert hook_schedule._name_of(found) == name


def test_our_own_hooks_are_scheduled_as_classes_that_are_known():
    from estimator_runtime.checkpoint.hook import CheckpointHook
    from estimator_runtime.session.hooks.step_rate import StepRateHook

    for cls in (CheckpointHook, StepRateHook):
        assert issubclass(cls, cls.scheduled_as)
        assert hook_schedule._name_of(cls.scheduled_as) in hook_schedule._BY_CLASS
