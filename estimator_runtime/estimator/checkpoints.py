"""Patches that make Estimators verify checkpoints, and hold those that they read.

Before it makes a session, `Estimator.train` reads the global step of the newest
checkpoint, to find out whether `max_steps` is reached. A checkpoint that it cannot read
counts as step 0, and it trains on. So the task that saves checkpoints verifies them
first.

The evaluation of a large model may take so long that `keep_checkpoint_max` newer
checkpoints are written, after which a Saver deletes the evaluated one. The exporters
then read it once more. So it is held until they are done.
"""

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime import reporting
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.save import writer
from estimator_runtime.checkpoint.store import files, locks
from estimator_runtime.checkpoint.tensor_bundle import checksums
from estimator_runtime.patching import patch


def patch_readers(_module: ModuleType) -> None:
    """Make Estimators hold the checkpoints that they read."""
    cls = estimator.Estimator
    in_folder = cls.latest_checkpoint
    cls.latest_checkpoint = _holding_latest(in_folder)
    # Only exports use the `latest_checkpoint` of a subclass.
    cls.evaluate = _holding(cls.evaluate, _refusing_none(in_folder))
    cls.predict = _holding_until_done(cls.predict, _refusing_none(in_folder))
    cls._export_all_saved_models = _holding(
        cls._export_all_saved_models, lambda self: self.latest_checkpoint()
    )


def _holding_latest(
    original: Callable[[Any], str | None],
) -> Callable[[Any], str | None]:
    """Wrap `latest_checkpoint` so that it holds the checkpoint for its reader."""

    @functools.wraps(original)
    def latest_checkpoint(self: Any) -> str | None:
        if not locks.is_together():  # nobody reads it here
            return original(self)
        return locks.hold_newest(lambda: original(self))

    return latest_checkpoint


def _refusing_none(
    latest: Callable[[Any], str | None],
) -> Callable[[Any], str | None]:
    """Wrap `latest_checkpoint` so that it raises beside a good checkpoint.

    If TensorFlow finds no checkpoint, it evaluates the initial values of the model.
    """

    def latest_or_none(self: Any) -> str | None:
        found, folder = latest(self), os.fsdecode(self.model_dir)
        if found is None and "://" not in folder:
            recovery.refuse_to_start_over(folder, "the model would be untrained")
        return found

    return latest_or_none


def _holding(
    original: Callable[..., Any], latest: Callable[[Any], str | None]
) -> Callable[..., Any]:
    """Wrap a method that takes a `checkpoint_path` so that it holds that while it runs.

    `latest` returns the newest checkpoint of an Estimator, or None.
    """
    bind = patch.binder(original)

    @functools.wraps(original)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = bind(self, *args, **kwargs)
        with locks.together():
            _hold_checkpoint(call, lambda: latest(self), locks.hold)
            return original(*call.args, **call.kwargs)

    return read


def _holding_until_done(
    original: Callable[..., Iterator[Any]], latest: Callable[[Any], str | None]
) -> Callable[..., Iterator[Any]]:
    """Wrap a generator so that it holds its checkpoint until it ends."""
    bind = patch.binder(original)

    def generate(self: Any, call: inspect.BoundArguments) -> Iterator[Any]:
        # Not `locks.together`, because the caller of a generator sees the context
        # variables that the generator sets.
        with contextlib.ExitStack() as leases:

            def hold(prefix: str) -> bool:
                return locks.hold(prefix, leases)

            _hold_checkpoint(call, lambda: latest(self), hold)
            yield from original(*call.args, **call.kwargs)

    @functools.wraps(original)
    def read(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        # Bound here, because the generator would raise the error for wrong arguments
        # only at the first result.
        return generate(self, bind(self, *args, **kwargs))

    return read


def _hold_checkpoint(
    call: inspect.BoundArguments,
    latest: Callable[[], str | None],
    hold: Callable[[str], bool],
) -> None:
    """Hold the checkpoint that a call reads.

    If the call names none, the newest one is held and becomes its `checkpoint_path`.
    `hold` holds a checkpoint and returns whether it exists.
    """
    prefix = call.arguments.get("checkpoint_path")
    if prefix:
        writer.wait_for_own()
        hold(os.fsdecode(prefix))
    else:
        call.arguments["checkpoint_path"] = locks.hold_newest(latest, hold)


def patch_train(_module: ModuleType) -> None:
    """Make the task that saves checkpoints verify them before it trains."""
    original = estimator.Estimator.train
    bind = patch.binder(original)

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = bind(self, *args, **kwargs)
        folder = os.fsdecode(self.model_dir)
        config = self.config
        # A folder to which nothing is saved need not be found again.
        if config.save_checkpoints_secs or config.save_checkpoints_steps:
            files.check_model_dir("model_dir", folder)
        # Under the coordinator each task claims to be the chief until the coordinator
        # runs it. Then this is called again.
        coordinated = getattr(config, "_distribute_coordinator_mode", None)
        if config.is_chief and not coordinated and "://" not in folder:
            with locks.write_lock():
                newest = recovery.recover(folder)
            _check_result(folder, newest, call.arguments.get("max_steps"))
        if coordinated:
            return original(self, *args, **kwargs)
        # Here and not only in the session, because the program's input_fn may block.
        reporting.expect_steps()
        reporting.progress(doing="building the model")
        try:
            return original(self, *args, **kwargs)
        finally:
            reporting.expect_no_steps()

    estimator.Estimator.train = train


def _check_result(
    folder: str, newest: files.Checkpoint | None, max_steps: int | None
) -> None:
    """Verify the values of a checkpoint at which training is complete.

    No session restores such a checkpoint, so nothing else would detect damaged values.
    """
    if newest is None or not max_steps or (newest.step or 0) < max_steps:
        return
    problem = checksums.problem(newest.prefix)
    if problem is not None:
        recovery.set_aside_latest(folder, problem)
