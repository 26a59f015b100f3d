"""Hooks of TensorFlow, their timers and their event files."""

import time
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.context import graph_mode
from tensorflow.python.summary.writer.writer_cache import FileWriterCache
from tensorflow.python.training import (
    basic_session_run_hooks,
    session_manager,
    sync_replicas_optimizer,
)

# Some names are public too; these cost a step one look-up only.
SessionRunArgs: Any = tf.compat.v1.train.SessionRunArgs
SessionRunContext: Any = tf.compat.v1.train.SessionRunContext
SessionRunValues: Any = tf.compat.v1.train.SessionRunValues
SecondOrStepTimer: Any = basic_session_run_hooks.SecondOrStepTimer
NeverTriggerTimer: Any = basic_session_run_hooks.NeverTriggerTimer
SyncReplicasOptimizerHook: Any = sync_replicas_optimizer._SyncReplicasOptimizerHook
# What a session calls on its hooks at each step. A hook that has its own, set on itself
# and not by its class, is not what its class says.
STEP_METHODS = frozenset({"before_run", "after_run"})


def patch(_module: object) -> None:
    """Make timers and waits go by `now`, and ProfilerHook work in eager mode.

    ProfilerHook opens its event file when it is made; TensorFlow's other hooks open
    theirs in the graph of the training.
    """
    for module in (basic_session_run_hooks, session_manager):
        module.time = _Time()
    basic_session_run_hooks.SummaryWriterCache = _EventFiles


class _Time:
    """The module `time` with a `time()` that never goes back."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def time(self) -> float:
        return now()


def now() -> float:
    """Return seconds by the clock of TensorFlow's timers once they are patched."""
    return time.monotonic()


def current() -> float:
    """Return seconds by the clock of TensorFlow's timers, patched or not."""
    return basic_session_run_hooks.time.time()


class _EventFiles(FileWriterCache):
    """The cache of event files, which refuses to open one in eager mode."""

    @staticmethod
    def get(logdir: str) -> tf.compat.v1.summary.FileWriter:
        with graph_mode():
            return FileWriterCache.get(logdir)


def open_event_files(hooks: Iterable[Any]) -> list[tf.compat.v1.summary.FileWriter]:
    """Return the event files of hooks that are open: shared ones, and their own."""
    own = [getattr(hook, "_summary_writer", None) for hook in hooks]
    kind = tf.compat.v1.summary.FileWriter
    found = [e for e in (*FileWriterCache._cache.values(), *own) if type(e) is kind]
    return [each for each in found if not each._closed]
