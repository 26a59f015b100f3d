"""The best checkpoints of a training, by a metric, kept in a folder of their own.

They are links to the files that training has saved, so they cost no space as long as
those are there, and stay when those are deleted. The folder is one of checkpoints like
any other; the newest, to whoever asks, is the best.
"""

import contextlib
import dataclasses
import json
import logging
import math
import os
import shutil
import time

from estimator_runtime.checkpoint import commit, durable, event_file, files, lease
from estimator_runtime.checkpoint.leftovers import finish_dead
from estimator_runtime.checkpoint.state import (
    State,
    StateError,
    read_state,
    write_state,
)
from estimator_runtime.errors import CheckpointError, ConfigError
from estimator_runtime.training_log import TRAINING_LOG

FOLDER = "best"
_METRICS = "metrics.json"
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Criterion:
    """Which checkpoints are the best.

    Attributes:
        keep: How many are kept, 1 or more.
        metric: Name of the metric of an evaluation.
        mode: "max" if more of it is better, "min" if less is.
    """

    keep: int
    metric: str
    mode: str

    def ranked(self, metrics):
        """Rank checkpoints.

        Args:
            metrics: Name of a checkpoint to its metrics, name to number.

        Returns:
            Names of those that have the metric, the best first; of equal
            ones the earlier step.
        """
        sign = -1 if self.mode == "max" else 1
        known = {n: m[self.metric] for n, m in metrics.items() if self.metric in m}
        return sorted(known, key=lambda n: (sign * known[n], files.step_of(n) or 0))


class BestCheckpoints:
    """The folder `best` in a model directory.

    Args:
        model_dir: Path of the model directory.
        criterion: `Criterion`.
        eval_dir: Folder of the evaluation's event files, which know the metrics of what
            is kept should the notes of them be lost; or None.
        now: Gives seconds since 1970.

    Raises:
        ConfigError: If the model directory is not a local folder.
    """

    def __init__(self, model_dir, criterion, eval_dir=None, now=time.time):
        if "://" in model_dir:
            raise ConfigError(
                f"RunConfig: keep_best is {criterion.keep}, but the model_dir "
                f"{model_dir!r} is no local folder; there none can be kept"
            )
        self._folder = os.path.join(os.path.abspath(model_dir), FOLDER)
        self._criterion = criterion
        self._eval_dir = eval_dir
        self._now = now
        self._told: set[str] = set()  # names that the log has warned of

    def offer(self, prefix, metrics):
        """Keep a checkpoint if it is one of the best, and let go of what is not.

        Args:
            prefix: Its path without suffix. It must not be deleted meanwhile.
            metrics: Name to number, of the metrics of its evaluation.

        Returns:
            Whether it is kept.

        Raises:
            ConfigError: If the evaluation has no such metric.
            CheckpointError: If it cannot be kept; those kept before are as they were.
        """
        metric = self._criterion.metric
        if metric not in metrics:
            raise ConfigError(
                f"RunConfig: best_metric is {metric!r}, but the evaluation has "
                f"{', '.join(map(repr, sorted(metrics)))}; give one of these"
            )
        try:
            os.makedirs(self._folder, exist_ok=True)
            finish_dead(self._folder, self._now)
            return self._keep(prefix, metrics)
        except OSError as error:
            raise CheckpointError(
                f"{prefix!r} cannot be kept in {self._folder!r}: "
                f"{error.strerror or error}; make room, or give the permission, or "
                "leave keep_best out"
            ) from error

    def _keep(self, prefix, metrics):
        name, metric = os.path.basename(prefix), self._criterion.metric
        written = self._metrics()
        noted = {**written, **self._adopted(written, name)}
        found = {n: v for n, v in noted.items() if self._at(n).has_index}
        # JSON has no other numbers.
        finite = {n: v for n, v in metrics.items() if math.isfinite(v)}
        known = {**found, name: finite}
        best = self._criterion.ranked(known)[: self._criterion.keep]
        is_kept = name in best
        place = f"number {best.index(name) + 1} of the best" if is_kept else "not kept"
        TRAINING_LOG.info("%s has %s %g: %s", name, metric, metrics[metric], place)
        if not best:
            return False
        if is_kept:
            written = {**noted, name: finite}
            self._write_metrics(written)
            try:
                self._link(prefix)
            except FileNotFoundError:
                # By who asks no reader, or where the file system knows no locks.
                _logger.warning(
                    "%s is not kept among the best: it was deleted while it was "
                    "evaluated",
                    prefix,
                )
                self._write_metrics(noted)
                return False
        # Also where it is not kept: a run that died may have left more than the best.
        self._write_state(best)
        read = [other for other in noted.keys() - best if not self._delete(other)]
        left = {each: known.get(each, noted.get(each)) for each in (*best, *read)}
        if left != written:
            self._write_metrics(left)
        return is_kept

    def _at(self, name):
        return files.at(os.path.join(self._folder, name))

    def _delete(self, name):
        """Delete a checkpoint unless somebody reads it; tell whether it is gone."""
        prefix = os.path.join(self._folder, name)
        with lease.deleting(prefix) as is_free:
            if is_free:
                files.delete(files.at(prefix))
        return is_free

    def _adopted(self, noted, new):
        """Give the metrics of checkpoints that are kept, but of which there is no note.

        The notes were lost, or somebody has put the checkpoints there. Those whose
        metric is not known are left alone.
        """
        there = [each for each in files.find(self._folder) if each.has_index]
        steps = {os.path.basename(each.prefix): each.step for each in there}
        lacking = {n: s for n, s in steps.items() if n not in noted and n != new}
        if not lacking:
            return {}
        # Where the metric is missing too, nobody can say that it is not the best.
        metrics = event_file.by_step(self._eval_dir) if self._eval_dir else {}
        known = {
            n: {tag: v for tag, v in metrics[s].items() if math.isfinite(v)}
            for n, s in lacking.items()
            if self._criterion.metric in metrics.get(s, ())
        }
        unknown = sorted(lacking.keys() - known.keys() - self._told)
        if unknown:
            self._told.update(unknown)
            _logger.warning(
                "%s in %s: no evaluation of which the metric %r is known; kept, but "
                "not counted among the best. Delete what is not needed",
                ", ".join(unknown),
                self._folder,
                self._criterion.metric,
            )
        return known

    def _metrics(self):
        """Give the metrics that are noted, by name of the checkpoint."""
        path = os.path.join(self._folder, _METRICS)
        try:
            with open(path) as file:
                noted = json.load(file)
            if not isinstance(noted, dict) or not all(
                isinstance(each, dict) for each in noted.values()
            ):
                raise ValueError("it has no metrics by name")
        except FileNotFoundError:
            return {}
        except ValueError as error:
            _logger.warning("%s cannot be read (%s); it is made again", path, error)
            return {}
        return noted

    def _write_metrics(self, metrics):
        content = json.dumps(metrics, indent=2, sort_keys=True).encode()
        durable.replace_file(os.path.join(self._folder, _METRICS), content)

    def _link(self, prefix):
        target = os.path.join(self._folder, os.path.basename(prefix))
        source = files.at(prefix)
        os.stat(f"{prefix}.index")  # the last of its files to come, the first to go
        if _are_same(source, files.at(target)):
            return  # of an evaluation before; nobody need find it missing meanwhile
        hidden = commit.start(target)
        try:
            for path in source.files:
                durable.sync_file(path)  # TensorFlow's Saver does not
                link = os.path.join(hidden, os.path.basename(path))
                try:
                    os.link(path, link)
                except OSError:  # a file system without links
                    shutil.copy2(path, link)
            commit.forget(self._folder, target)
            commit.move_in(hidden, target)
        finally:
            commit.abandon(hidden)

    def _write_state(self, best):
        # The last one is what a restart, or a warm start, takes.
        paths = tuple(os.path.join(self._folder, name) for name in reversed(best))
        times = tuple(files.at(path).saved_at for path in paths)
        state = State(latest=paths[-1], paths=paths, timestamps=times)
        with contextlib.suppress(StateError):
            if read_state(self._folder) == state:
                return
        write_state(self._folder, state)


def _are_same(one, other):
    """Tell whether two checkpoints have the same files, under two names."""
    return len(one.files) == len(other.files) and all(
        map(os.path.samefile, one.files, other.files)
    )
