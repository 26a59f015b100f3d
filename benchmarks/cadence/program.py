"""Runs somebody's script for a bounded time, with another cadence of checkpoints.

Started by `benchmarks.cadence.benchmark`: the settings, as JSON, then the script and
its arguments. Whatever model directory its Estimator has, a copy beside it is trained
in: beside it, because what a checkpoint costs depends on the disk.
"""

import functools
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import estimator_runtime as er
from estimator_runtime.checkpoint.checkpoint import Checkpoint
from estimator_runtime.checkpoint.store.state_file import State, read_state, write_state
from estimator_runtime.cli import script

_WARM_UP_STEPS = 240  # the runtime chooses its threads in the first 238 at most
_LEAST_STEPS = 5
_MOST_RUNS = 4  # times the seconds to measure, evaluations and all else included


def main(settings, path, arguments):
    """Run the script, and write down what its first training of some length did.

    Args:
        settings: A dict. `every_steps`: steps from one checkpoint to the next; `secs`:
            how long to measure; `result`: path of a JSON file, to which the copy of
            the model directory goes first, then also the figures.
        path: Path of the script.
        arguments: Its arguments.
    """
    er.install()
    _bound(settings)
    return script.run_script(path, arguments)


def _bound(settings):
    import tensorflow as tf

    elsewhere = [0.0]

    def now():
        """Return the seconds that were spent on neither evaluations nor exports."""
        return time.perf_counter() - elsewhere[0]

    class Meter(tf.estimator.SessionRunHook):
        """Reads the clock after each step, and ends the training when it is time."""

        def __init__(self):
            self.first: tuple[float, int] | None = None
            self.last: tuple[float, int] | None = None
            self._calls, self._begun = 0, now()

        def begin(self):
            self._global_step = tf.compat.v1.train.get_global_step()

        def after_create_session(self, session, coord):
            self._begun = now()

        def before_run(self, context):
            return tf.estimator.SessionRunArgs(self._global_step)

        def after_run(self, context, values):
            self._calls += 1
            is_warm = self._calls >= _WARM_UP_STEPS
            if self.first is None:
                if is_warm or now() - self._begun > settings["secs"] / 4:
                    self.first = now(), int(values.results)
                    self._warm = time.perf_counter()
                return
            self.last = now(), int(values.results)
            all_secs = time.perf_counter() - self._warm
            is_late = all_secs > _MOST_RUNS * settings["secs"]
            if is_late or self.last[0] - self.first[0] >= settings["secs"]:
                context.request_stop()

        def steps_until_due(self, global_step):
            """Run several steps in one call."""

        def figures(self):
            """Return what was measured, ready for JSON."""
            if self.first is None or self.last is None:
                return {"steps": 0}
            return {
                "first_step": self.first[1],
                "steps": self.last[1] - self.first[1],
                "secs": self.last[0] - self.first[0],
            }

    def uncounted(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            begun, before = time.perf_counter(), elsewhere[0]
            try:
                return function(*args, **kwargs)
            finally:  # one may call another
                elsewhere[0] = before + time.perf_counter() - begun

        return call

    estimator = tf.compat.v1.estimator.Estimator
    original_init, original_train = estimator.__init__, estimator.train
    copies = {}

    def init(self, model_fn, model_dir=None, config=None, *args, **kwargs):
        config = config or er.RunConfig()
        folder = model_dir or config.model_dir
        folder = folder and os.path.abspath(os.fspath(folder))
        if folder not in copies:
            copies[folder] = _copy(folder)
            _write(settings, {"model_dir": copies[folder]})
        config = config.replace(
            model_dir=copies[folder],
            save_checkpoints_secs=None,
            save_checkpoints_steps=settings["every_steps"],
        )
        original_init(self, model_fn, None, config, *args, **kwargs)

    def train(self, input_fn, hooks=None, *args, **kwargs):
        meter = Meter()
        hooks = [*(hooks or ()), meter]
        result = original_train(self, input_fn, hooks, *args, **kwargs)
        figures = meter.figures()
        if figures["steps"] < _LEAST_STEPS:
            return result  # the script may train once more
        _write(settings, {"model_dir": self.model_dir, **figures})
        sys.exit(0)  # what it does after its training costs no checkpoint

    estimator.__init__, estimator.train = init, train
    for name in ("evaluate", "export_saved_model"):
        setattr(estimator, name, uncounted(getattr(estimator, name)))


def _copy(folder):
    """Return a new folder beside a model directory, with its newest checkpoint."""
    parent = os.path.dirname(folder) if folder else None
    if parent:
        os.makedirs(parent, exist_ok=True)
    copy = tempfile.mkdtemp(prefix=".cadence-", dir=parent)
    state = read_state(folder) if folder and os.path.isdir(folder) else None
    if state is not None:
        newest = Checkpoint.at(state.latest)
        for path in newest.files:
            shutil.copy2(path, copy)
        prefix = os.path.join(copy, os.path.basename(newest.prefix))
        write_state(copy, State(latest=prefix, paths=(prefix,)))
    return copy


def _write(settings, found):
    pathlib.Path(settings["result"]).write_text(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3:]))
