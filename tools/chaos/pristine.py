"""Model directories in good order, and images of those whose save was cut off."""

import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = (100, 200, 300, 400, 500)
CRASHED = 600  # the step whose save is cut off in a crash image
SHAPES = ([3], [200], [7, 5], [1], [64], [2, 2])


class Model:
    """A model whose variables all tell the step; in the default graph.

    Attributes:
        fetches: The global step and all variables.
        train: Op that adds `by` to all of them.
        by: Placeholder; 1 by default.
    """

    def __init__(self, shards: int, keep: int):
        import tensorflow as tf

        v1 = tf.compat.v1
        step = v1.train.get_or_create_global_step()
        self.by = v1.placeholder_with_default(1, [])
        variables = []
        for i, shape in enumerate(SHAPES):
            with tf.device(f"/cpu:{i % shards}"):
                value = tf.fill(shape, float(i))
                variables.append(v1.get_variable(f"v{i}", initializer=value))
        by = tf.cast(self.by, tf.float32)
        added = [v.assign_add(tf.fill(v.shape, by)) for v in variables]
        self.train = tf.group(step.assign_add(tf.cast(self.by, step.dtype)), *added)
        self.fetches = [step, *variables]
        saver = v1.train.Saver(
            sharded=shards > 1, max_to_keep=keep, save_relative_paths=True
        )
        self.scaffold = v1.train.Scaffold(saver=saver)

    def session(self, folder: Path, save_steps: int, hooks: Any = ()) -> Any:
        """Return the runtime's session of a folder."""
        import tensorflow as tf

        import estimator_runtime as er

        return er.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            scaffold=self.scaffold,
            hooks=hooks,
            save_checkpoint_steps=save_steps,
            save_summaries_steps=None,
            log_step_count_steps=None,
            config=tf.compat.v1.ConfigProto(device_count={"CPU": 2}),
        )


def step_of_values(values: list[Any]) -> int | None:
    """Return the step that all values tell, or None if they differ."""
    step = int(values[0])
    same = all((v == step + i).all() for i, v in enumerate(values[1:]))
    return step if same else None


def build(work: Path) -> None:
    """Make the pristine folders, and images of folders whose save was cut off.

    An image is taken before each call that changes names or waits for the disk, while
    the runtime saves one step more and lets the oldest checkpoint go.
    """
    import tensorflow as tf

    for shards in (1, 2):
        base = work / f"base-{shards}"
        shutil.rmtree(base, ignore_errors=True)
        # The runtime writes one file, the Saver as many as there are devices.
        os.environ["ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT"] = "1" if shards == 1 else "0"
        with tf.Graph().as_default():
            model = Model(shards, keep=len(STEPS))
            with model.session(base / "plain", 100) as session:
                for _ in STEPS:
                    session.run(model.train, {model.by: 100})
        shutil.copytree(base / "plain", base / "saved")
        del os.environ["ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT"]
        with tf.Graph().as_default():
            model = Model(shards, keep=len(STEPS))
            session = model.session(base / "saved", 100)
            session.run(model.train)
            with images(base / "saved", base), session:
                session.run(model.train, {model.by: 99})
        for state in base.glob("*/checkpoint"):
            # So that the same seed flips the same bits in each run.
            stat = state.stat()
            state.write_text(
                re.sub(r"\b1\d{9}\.\d+", "1700000000.5", state.read_text())
            )
            os.utime(state, (stat.st_atime, stat.st_mtime))


class images:
    """Copies a folder, inside of `with`, before each call that changes it."""

    NAMES = ("rename", "replace", "fsync", "unlink", "rmdir")

    def __init__(self, folder: Path, target: Path):
        self._folder, self._target = folder, target
        self._old = {name: getattr(os, name) for name in self.NAMES}
        self._lock = threading.RLock()
        self._count, self._is_copying = 0, False

    def __enter__(self) -> None:
        for name, call in self._old.items():
            setattr(os, name, self._after_image(call))

    def __exit__(self, *_: object) -> None:
        for name, call in self._old.items():
            setattr(os, name, call)

    def _after_image(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            with self._lock:
                if not self._is_copying:
                    self._is_copying = True
                    target = self._target / f"image-{self._count:02d}"
                    shutil.copytree(self._folder, target)
                    self._count, self._is_copying = self._count + 1, False
            return call(*arguments, **keywords)

        return wrapped
