"""What checkpoints cost a training: none, stock's and this runtime's."""

import contextlib
import dataclasses
import functools
import statistics
import tempfile
import time

import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from benchmarks.checkpoints.report import BASELINE
from benchmarks.harness import measurement
from benchmarks.harness.measurement import Stamp
from benchmarks.training.contenders import quiet_log

tf1 = tf.compat.v1

# Megabytes of variables to the steps from one checkpoint to the next.
_CADENCES = {1: (100,), 100: (100,), 1000: (20, 120)}
_QUICK_CADENCES = {1: (5,), 2: (5, 10)}
_SAVES = 4
_ROUNDS = 3
_VARIABLES = 10
# The runtime chooses its threads in the first 56 steps, in more where they are short.
_WARM_UP, _WARM_UP_SHORT = 60, 240
_SHORT_MEGABYTES = 10
_MAKERS = {
    "stock": monitored_session.MonitoredTrainingSession,
    "ours": er.MonitoredTrainingSession,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What one training cost.

    Attributes:
        steps_secs: Wall time of each measured step, in seconds.
        every: Steps from one checkpoint to the next; the first measured one saves.
        cpu_secs: CPU time of all threads over the measured steps.
    """

    steps_secs: tuple[float, ...]
    every: int
    cpu_secs: float

    @property
    def wall_secs(self):
        """Wall time of all measured steps."""
        return sum(self.steps_secs)

    @property
    def usual_secs(self):
        """The time of a step that neither saves nor follows one that does."""
        usual = [t for i, t in enumerate(self.steps_secs) if i % self.every > 1]
        return statistics.median(usual)

    def beyond_usual(self, place):
        """Return how much longer the steps at a place after each save took."""
        return [t - self.usual_secs for t in self.steps_secs[place :: self.every]]


def measure(quick, announce):
    """Train variables of each size with each cadence, in every way, interleaved.

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON; its shape is in README.md.
    """
    report = measurement.new_report("checkpoints", BASELINE, quick, sizes={})
    for megabytes, cadences in (_QUICK_CADENCES if quick else _CADENCES).items():
        announce(f"{megabytes} MB")
        ways = {
            _name(way, every): functools.partial(train, way, megabytes, every)
            for every in cadences
            for way in (BASELINE, *_MAKERS)
        }
        trainings = measurement.interleave(ways, 1 if quick else _ROUNDS, announce)
        report["sizes"][str(megabytes)] = {
            "measured_saves": _SAVES,
            "cadences": {str(every): _figures(trainings, every) for every in cadences},
        }
    return report


def train(way, megabytes, every):
    """Train variables of a size by dense gradient descent; give the `Training`.

    The measured steps begin with one that saves, and end right before one.
    """
    warm_up = _WARM_UP_SHORT if megabytes < _SHORT_MEGABYTES else _WARM_UP
    first = -(-warm_up // every) * every  # a multiple of `every`
    with (
        tempfile.TemporaryDirectory() as folder,
        tf.Graph().as_default(),
        quiet_log(),
        contextlib.ExitStack() as stack,
    ):
        step = build(megabytes)
        session = stack.enter_context(make_session(way, folder, every))
        for _ in range(first - 1):
            session.run(step)
        start, times = Stamp.now(), []
        for _ in range(every * _SAVES):
            before = time.perf_counter()
            session.run(step)
            times.append(time.perf_counter() - before)
        end = Stamp.now()
    return Training(
        steps_secs=tuple(times), every=every, cpu_secs=end.cpu_secs - start.cpu_secs
    )


def make_session(way, folder, every):
    """Make a session on `folder` that does nothing but restore, and save if it is to.

    Args:
        way: One of the ways to save, or not to.
        folder: Path of the folder of its checkpoints.
        every: Steps from save to save, or None.
    """
    return _MAKERS.get(way, er.MonitoredTrainingSession)(
        checkpoint_dir=folder,
        scaffold=tf1.train.Scaffold(saver=tf1.train.Saver(max_to_keep=2, sharded=True)),
        save_checkpoint_steps=None if way == BASELINE else every,
        save_checkpoint_secs=None,
        save_summaries_steps=None,
        log_step_count_steps=None,
    )


def build(megabytes):
    """Return a step that changes every byte of so many megabytes of variables."""
    rows = megabytes * 2**20 // 4 // 256 // _VARIABLES
    variables = [
        tf1.get_variable(f"v{i}", [rows, 256], use_resource=True)
        for i in range(_VARIABLES)
    ]
    loss = tf.add_n([tf.reduce_sum(v) for v in variables])
    global_step = tf1.train.get_or_create_global_step()
    return tf1.train.GradientDescentOptimizer(1e-3).minimize(loss, global_step)


def _name(way, every):
    return f"{way}, every {every} steps"


def _figures(trainings, every):
    reference = trainings[_name(BASELINE, every)]
    found = {}
    for way in (BASELINE, *_MAKERS):
        own = trainings[_name(way, every)]
        pairs = list(zip(own, reference, strict=True))
        found[way] = {
            "steps_per_sec": measurement.spread(
                len(t.steps_secs) / t.wall_secs for t in own
            ),
            "slowdown": measurement.spread(
                t.wall_secs / o.wall_secs - 1 for t, o in pairs
            ),
        }
        if way != BASELINE:
            found[way] |= {
                "blocked_ms": _spread_of_saves(own, 0),
                "next_step_ms": _spread_of_saves(own, 1),
                "cpu_secs_per_save": measurement.spread(
                    (t.cpu_secs - o.cpu_secs) / _SAVES for t, o in pairs
                ),
            }
    return found


def _spread_of_saves(trainings, place):
    return measurement.spread(
        1e3 * secs for each in trainings for secs in each.beyond_usual(place)
    )
