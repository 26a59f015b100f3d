"""The best checkpoints of a training, by a metric, kept in a folder of their own.

They are links to the files that training has saved, so they cost no space as long as
those are there, and stay when those are deleted. The folder is one of checkpoints like
any other; the newest, to whoever asks, is the best.
"""

import dataclasses
import json
import logging
import math
import os
import shutil
import time

from estimator_runtime.checkpoint import commit, durable, files
from estimator_runtime.checkpoint.state import State, write_state
from estimator_runtime.errors import ConfigError

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
        now: Gives seconds since 1970.

    Raises:
        ConfigError: If the model directory is not a local folder.
    """

    def __init__(self, model_dir, criterion, now=time.time):
        if "://" in model_dir:
            raise ConfigError(
                f"RunConfig: keep_best is {criterion.keep}, but the model_dir "
                f"{model_dir!r} is no local folder; there none can be kept"
            )
        self._folder = os.path.join(os.path.abspath(model_dir), FOLDER)
        self._criterion = criterion
        self._now = now

    def offer(self, prefix, metrics):
        """Keep a checkpoint if it is one of the best, and let go of what is not.

        Args:
            prefix: Its path without suffix. It must not be deleted meanwhile.
            metrics: Name to number, of the metrics of its evaluation.

        Returns:
            Whether it is kept.

        Raises:
            ConfigError: If the evaluation has no such metric.
            OSError: If it cannot be kept; those kept before are as they were.
        """
        metric = self._criterion.metric
        if metric not in metrics:
            raise ConfigError(
                f"RunConfig: best_metric is {metric!r}, but the evaluation has "
                f"{', '.join(map(repr, sorted(metrics)))}; give one of these"
            )
        os.makedirs(self._folder, exist_ok=True)
        commit.finish_dead(self._folder, self._now)
        name = os.path.basename(prefix)
        found = self._metrics()
        # JSON has no other numbers.
        finite = {n: v for n, v in metrics.items() if math.isfinite(v)}
        known = {**found, name: finite}
        best = self._criterion.ranked(known)[: self._criterion.keep]
        _logger.info(
            "%s has %s %g: %s",
            name,
            metric,
            metrics[metric],
            f"number {best.index(name) + 1} of the best"
            if name in best
            else "not kept",
        )
        if not best or (name not in best and name not in found):
            return False
        self._write_metrics(known)
        if name in best:
            self._link(prefix)
        self._write_state(best)
        for other in known.keys() - best:
            files.delete(files.at(os.path.join(self._folder, other)))
        self._write_metrics({each: known[each] for each in best})
        return name in best

    def _metrics(self):
        """Give the metrics of each checkpoint that is in the folder, by name."""
        try:
            with open(os.path.join(self._folder, _METRICS)) as file:
                noted = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError as error:
            path = os.path.join(self._folder, _METRICS)
            _logger.warning("%s cannot be read (%s); it is made again", path, error)
            return {}
        in_folder = {os.path.basename(each.prefix) for each in files.find(self._folder)}
        return {name: found for name, found in noted.items() if name in in_folder}

    def _write_metrics(self, metrics):
        content = json.dumps(metrics, indent=2, sort_keys=True).encode()
        durable.replace_file(os.path.join(self._folder, _METRICS), content)

    def _link(self, prefix):
        target = os.path.join(self._folder, os.path.basename(prefix))
        source = files.at(prefix)
        hidden = commit.start(target)
        try:
            for path in source.files:
                durable.sync_file(path)  # TensorFlow's Saver does not
                link = os.path.join(hidden, os.path.basename(path))
                try:
                    os.link(path, link)
                except OSError:  # a file system without links
                    shutil.copy2(path, link)
            commit.move_in(hidden, target)
        finally:
            commit.abandon(hidden)

    def _write_state(self, best):
        # The last one is what a restart, or a warm start, takes.
        paths = tuple(os.path.join(self._folder, name) for name in reversed(best))
        times = tuple(files.at(path).saved_at for path in paths)
        write_state(
            self._folder, State(latest=paths[-1], paths=paths, timestamps=times)
        )
