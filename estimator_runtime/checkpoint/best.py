"""The best checkpoints of a training, by a metric, kept in a folder of their own.

They are hard links to the files that training has saved. They take no space while those
files exist, and they remain when those are deleted. You can use the folder like any
other folder of checkpoints; its newest checkpoint is the best one.
"""

import contextlib
import dataclasses
import json
import logging
import math
import os
import shutil
from collections.abc import Mapping, Sequence

from estimator_runtime.checkpoint.checkpoint import Checkpoint, checkpoints_in
from estimator_runtime.checkpoint.store import durable, locks
from estimator_runtime.checkpoint.store.cleanup import put_back, remove_leftovers
from estimator_runtime.checkpoint.store.commit import SavingFolder
from estimator_runtime.checkpoint.store.state_file import (
    STATE_FILE,
    State,
    readable_state,
    write_state,
)
from estimator_runtime.checkpoint.tensor_bundle import reading
from estimator_runtime.checkpoint.tensor_bundle.regular_files import make_folder
from estimator_runtime.config.paths import is_local, step_of
from estimator_runtime.errors import CheckpointError, ConfigError
from estimator_runtime.output.training_log import TRAINING_LOG

FOLDER = "best"
_METRICS = "metrics.json"
# What the content of that file may raise, which others may have written.
_MALFORMED = (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError)
_logger = logging.getLogger(__name__)
_Metrics = dict[str, dict[str, float]]  # by name of the checkpoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class Criterion:
    """The criterion that selects the best checkpoints.

    Attributes:
        keep: How many checkpoints are kept, 1 or more.
        metric: Name of a metric of the evaluation.
        mode: "max" if a higher value is better, "min" if a lower value is better.
    """

    keep: int
    metric: str
    mode: str

    def ranked(self, metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
        """Return the names of checkpoints, the best first.

        Args:
            metrics: The metrics of each checkpoint, by its name: name of a metric to
                its value.

        Returns:
            The names of the checkpoints that have the metric. Of checkpoints with equal
            values, the one with the lower step comes first.
        """
        sign = -1 if self.mode == "max" else 1
        known = {n: m[self.metric] for n, m in metrics.items() if self.metric in m}
        return sorted(known, key=lambda n: (sign * known[n], step_of(n) or 0))


class BestCheckpoints:
    """The folder `best` in a model directory.

    Args:
        model_dir: Path of the model directory.
        criterion: The criterion that selects the checkpoints.

    Raises:
        ConfigError: If the model directory is not a local folder, or `best` in it is a
            symbolic link.
    """

    def __init__(self, model_dir: str, criterion: Criterion) -> None:
        if not is_local(model_dir):
            raise ConfigError(
                f"RunConfig: keep_best is {criterion.keep}, but the model_dir "
                f"{model_dir!r} is not a local folder, and checkpoints are kept in a "
                "local folder only"
            )
        self._folder = os.path.join(os.path.abspath(model_dir), FOLDER)
        if os.path.islink(self._folder):
            raise ConfigError(
                f"RunConfig: keep_best is {criterion.keep}, but {self._folder!r} is a "
                "symbolic link, and nothing is written through it; remove it, or leave "
                "keep_best out"
            )
        self._criterion = criterion

    def offer(self, prefix: str, metrics: Mapping[str, float]) -> bool:
        """Keep a checkpoint if it is one of the best, and delete those that are not.

        Args:
            prefix: Path of the checkpoint, without suffix. Nobody may delete it during
                the call.
            metrics: The metrics of its evaluation: name to value.

        Returns:
            Whether the checkpoint is kept.

        Raises:
            ConfigError: If the evaluation has no such metric.
            CheckpointError: If the checkpoint cannot be kept. The checkpoints that were
                kept before are unchanged.
        """
        metric = self._criterion.metric
        if metric not in metrics:
            raise ConfigError(
                f"RunConfig: best_metric is {metric!r}, but the evaluation has "
                f"{', '.join(map(repr, sorted(metrics)))}; give one of these"
            )
        try:
            make_folder(self._folder)
            put_back(self._folder)
            # What a run that died had put here and noted is no leftover.
            _, found = self._there(self._metrics())
            self._write_state(self._criterion.ranked(found))
            remove_leftovers(self._folder)
            return self._keep(prefix, metrics)
        except OSError as error:
            raise CheckpointError(
                f"{prefix!r} cannot be kept in {self._folder!r}: "
                f"{error.strerror or error}; make room, grant the permission, or leave "
                "keep_best out"
            ) from error

    def _keep(self, prefix: str, metrics: Mapping[str, float]) -> bool:
        name, metric = os.path.basename(prefix), self._criterion.metric
        written = self._metrics()
        noted, found = self._there(written)
        # JSON has no NaN and no infinity.
        finite = {n: v for n, v in metrics.items() if math.isfinite(v)}
        known = {**found, name: finite}
        best = self._criterion.ranked(known)[: self._criterion.keep]
        is_kept = name in best
        place = f"number {best.index(name) + 1} of the best" if is_kept else "not kept"
        TRAINING_LOG.info("%s has %s %g: %s", name, metric, metrics[metric], place)
        if not best:
            return False
        if is_kept:
            new = _name_of_new(Checkpoint.at(prefix))
            self._write_metrics({**noted, new: finite})
            if not self._is_linked(prefix, [n for n in best if n != name], noted):
                return False
            written = {**noted, name: finite}
            self._write_metrics(written)
        # Even if this checkpoint is not kept: a run that died may have left more
        # checkpoints than the best ones.
        self._write_state(best)
        read = [other for other in noted.keys() - best if not self._delete(other)]
        left = {each: {**noted, **known}[each] for each in (*best, *read)}
        if left != written:
            self._write_metrics(left)
        return is_kept

    def _there(self, metrics: _Metrics) -> tuple[_Metrics, _Metrics]:
        """Return the metrics of the checkpoints in the folder, and of the whole ones.

        The notes are not trusted: what they name elsewhere is not ours to delete. A
        checkpoint without a note cannot be ruled out as the best, so it stays.
        """
        there = {c.name: c for c in checkpoints_in(self._folder)}
        noted = {}
        for name, checkpoint in there.items():
            # If the process was killed in between, this tells the new one from the old.
            for each in (name, _name_of_new(checkpoint)):
                if each in metrics:
                    noted[name] = metrics[each]
        return noted, {n: v for n, v in noted.items() if there[n].has_index}

    def _is_linked(self, prefix: str, others: Sequence[str], noted: _Metrics) -> bool:
        """Link a checkpoint beside `others`, or restore the notes on those there.

        Returns:
            Whether it was still there.
        """
        try:
            self._link(prefix, others)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._write_metrics(noted)
                _, found = self._there(noted)
                self._write_state(self._criterion.ranked(found))
            if not isinstance(error, FileNotFoundError):
                raise
            # Deleted by a process that does not check for readers, or on a file system
            # without locks.
            _logger.warning(
                "%s is not kept among the best: it was deleted while it was evaluated",
                prefix,
            )
            return False
        return True

    def _delete(self, name: str) -> bool:
        """Delete a checkpoint unless a reader holds it; return whether it is gone."""
        prefix = os.path.join(self._folder, name)
        with locks.deleting(prefix) as is_free:
            if is_free:
                Checkpoint.at(prefix).delete()
        return is_free

    def _metrics(self) -> _Metrics:
        """Return the noted metrics, by name of the checkpoint."""
        path = os.path.join(self._folder, _METRICS)
        try:
            noted = json.loads(reading.content(path))
            return {
                name: {m: float(v) for m, v in each.items() if math.isfinite(v)}
                for name, each in noted.items()
            }
        except FileNotFoundError:
            return {}
        except _MALFORMED as error:
            _logger.warning("%s cannot be read (%s); it is made again", path, error)
            return {}

    def _write_metrics(self, metrics: _Metrics) -> None:
        content = json.dumps(metrics, indent=2, sort_keys=True).encode()
        durable.replace_file(os.path.join(self._folder, _METRICS), content)

    def _link(self, prefix: str, others: Sequence[str]) -> None:
        """Link a checkpoint into the folder, in place of another one of its name.

        `others` are the names of the best ones beside it.
        """
        target = os.path.join(self._folder, os.path.basename(prefix))
        source, old = Checkpoint.at(prefix), Checkpoint.at(target)
        # A save creates the index last, and a deletion removes it first.
        os.stat(f"{prefix}.index")
        if _are_same(source, old):
            return  # linked after an earlier evaluation
        if old.files:
            # Readers find no checkpoint of this name for a moment.
            self._write_state(others)
            if not others:
                durable.remove_if_there(os.path.join(self._folder, STATE_FILE))
        folder = SavingFolder.create(target)
        try:
            for path in source.files:
                durable.sync_file(path)  # TensorFlow's Saver does not sync
                _link(path, os.path.join(folder.path, os.path.basename(path)))
            folder.move_in()
        except OSError:
            with contextlib.suppress(OSError):
                folder.undo()
            raise
        finally:
            folder.remove()

    def _write_state(self, best: Sequence[str]) -> None:
        """Name checkpoints in the state file, the best one as the newest."""
        if not best:
            return
        paths = tuple(os.path.join(self._folder, name) for name in reversed(best))
        times = tuple(Checkpoint.at(path).saved_at for path in paths)
        state = State(latest=paths[-1], paths=paths, timestamps=times)
        if readable_state(self._folder) != state:
            write_state(self._folder, state)


def _name_of_new(checkpoint: Checkpoint) -> str:
    """Return the name for the metrics of a checkpoint that is about to be put here.

    Another one may have its name. Links and copies have the time of the original.
    """
    return f"{checkpoint.name} of {checkpoint.saved_at!r}"


def _link(path: str, link: str) -> None:
    try:
        os.link(path, link)
    except OSError:  # a file system without hard links
        shutil.copy2(path, link)


def _are_same(one: Checkpoint, other: Checkpoint) -> bool:
    """Return whether two checkpoints are links to the same files."""
    return len(one.files) == len(other.files) and all(
        map(os.path.samefile, one.files, other.files)
    )
