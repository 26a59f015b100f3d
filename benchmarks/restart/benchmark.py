"""What a restart costs: restoring a checkpoint; and the memory of that and of saves."""

import contextlib
import functools
import multiprocessing
import pathlib
import re
import tempfile

import tensorflow as tf

from benchmarks.checkpoints import benchmark
from benchmarks.harness import measurement
from benchmarks.harness.measurement import Stamp
from benchmarks.restart.report import BASELINE
from benchmarks.training.contenders import quiet_log

tf1 = tf.compat.v1

_MEGABYTES = (1, 100, 1000)
_QUICK_MEGABYTES = (1,)
_ROUNDS = 5
_SAVES = 4
_STEPS_BETWEEN = 30  # the writes of 1000 MB are over at the next
_TIMEOUT_SECS = 300
_WAYS = ("stock", "ours")


def measure(quick, announce):
    """Restore and save variables of each size, each time in a process of its own.

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON; its shape is in README.md.
    """
    report = measurement.new_report("restart", BASELINE, quick, restarts={})
    rounds = 1 if quick else _ROUNDS
    for megabytes in _QUICK_MEGABYTES if quick else _MEGABYTES:
        announce(f"{megabytes} MB")
        with tempfile.TemporaryDirectory() as folder:
            # Both restore the same files, and find them in the page cache.
            _apart(train, "stock", megabytes, folder)
            restores = {
                way: functools.partial(_apart, restore, way, megabytes, folder)
                for way in _WAYS
            }
            restored = measurement.interleave(restores, rounds, announce)
        trainings = {
            way: functools.partial(_apart, train, way, megabytes)
            for way in ("none", *_WAYS)
        }
        trained = measurement.interleave(trainings, rounds, announce)
        report["restarts"][str(megabytes)] = {
            "restore": {way: _spreads(found) for way, found in restored.items()},
            "training": {way: _spreads(found) for way, found in trained.items()},
        }
    return report


def restore(way, megabytes, folder):
    """Make a session that restores `folder`; give its figures, of this process."""
    with contextlib.ExitStack() as stack:
        _enter_graph(stack)
        benchmark.build(megabytes)
        step = tf1.train.get_global_step()
        # The first session of a process starts TensorFlow's threads and devices.
        with tf.Graph().as_default(), tf1.Session() as session:
            session.run(tf1.constant(0))
        start = Stamp.now()
        session = stack.enter_context(benchmark.make_session(way, folder, None))
        end = Stamp.now()
        if session.run(step) == 0:
            raise RuntimeError(f"nothing has been restored from {folder}")
        return {
            "secs": end.wall_secs - start.wall_secs,
            "cpu_secs": end.cpu_secs - start.cpu_secs,
            "peak_mb": _peak_mb(),
        }


def train(way, megabytes, folder=None):
    """Take the steps of a few saves, and save or not; give the peak of the memory."""
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
        _enter_graph(stack)
        step = benchmark.build(megabytes)
        with benchmark.make_session(way, folder, _STEPS_BETWEEN) as session:
            for _ in range(_SAVES * _STEPS_BETWEEN):
                session.run(step)
        return {"peak_mb": _peak_mb()}


def _enter_graph(stack):
    stack.enter_context(quiet_log())
    stack.enter_context(tf.Graph().as_default())


def _apart(function, *arguments):
    """Call a function of this module in a process of its own.

    Raises:
        multiprocessing.TimeoutError: If it does not return in time; its process ends.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply_async(function, arguments).get(_TIMEOUT_SECS)


def _peak_mb():
    """Return the peak memory of this process, in MB."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024


def _spreads(found):
    return {key: measurement.spread(each[key] for each in found) for key in found[0]}
