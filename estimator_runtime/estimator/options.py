"""Patches that pass the options of this runtime to the sessions of Estimators.

The frozen Estimator passes only TensorFlow's arguments to its session. The other
options of this runtime's RunConfig are passed beside the call (see `config.options`).
While an Estimator trains, signals stop it in an orderly way, in sessions of TensorFlow
too.
"""

import functools
import os
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.python.training import session_manager
from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.config import options, waits
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching import patch
from estimator_runtime.signals import request


def patch_estimator(_module: ModuleType) -> None:
    """Make an Estimator's training sessions use the options of its config."""
    original = estimator.Estimator._train_model

    @functools.wraps(original)
    def train_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = options.TrainingOptions.of(self.config)
        _check_model_dir(self)
        with options.use(own), request.watched():
            return original(self, *args, **kwargs)

    estimator.Estimator._train_model = train_model


def _check_model_dir(trained: Any) -> None:
    """Raise if the model directory of a chief that saves in it cannot be made.

    TensorFlow would only notice when the model has been built. Nothing is created.
    """
    folder, config = tf.compat.as_str_any(trained.model_dir), trained.config
    writes = (
        config.save_checkpoints_steps
        or config.save_checkpoints_secs
        or config.save_summary_steps
    )
    if "://" in folder or not config.is_chief or not writes:
        return
    existing = os.path.abspath(folder)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    is_there = existing == os.path.abspath(folder)
    if not os.path.isdir(existing):
        problem = f"{existing} is not a folder"
    elif not is_there and not os.access(existing, os.W_OK | os.X_OK):
        problem = f"this user may not write in {existing}"
    else:
        return
    raise ConfigError(
        f"RunConfig: model_dir is {folder!r}, which cannot be created: {problem}; give "
        "another folder"
    )


def patch_session_manager(_module: ModuleType) -> None:
    """Make `waits.recovery_wait_secs` the default; an argument still overrides it.

    It is the interval at which a waiting session checks whether the chief is ready.
    SessionManager has an argument for it, but none of TensorFlow's callers passes it.
    The default is 30 s (tensorflow#10679), so a worker that checks a moment too early
    loses half a minute.
    """
    original = session_manager.SessionManager.__init__
    bind = patch.binder(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = bind(self, *args, **kwargs).arguments
        if "recovery_wait_secs" not in given:
            kwargs["recovery_wait_secs"] = waits.recovery_wait_secs()
        original(self, *args, **kwargs)

    session_manager.SessionManager.__init__ = init
