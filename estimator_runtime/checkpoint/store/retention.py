"""Retention: which checkpoints to keep when a new one is saved."""

import dataclasses
import math
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetentionPlan:
    """Which of a Saver's checkpoints to keep and which to delete.

    Attributes:
        kept: (path, seconds since 1970) of each checkpoint that the Saver still tracks,
            oldest first.
        gone: Paths of the checkpoints to delete.
        preserved_at: Start of the current interval of `Policy.every_secs`, in seconds
            since 1970. The first checkpoint after its end is kept for good. Intervals
            are counted from the start of the training, and this one is the last that
            begins before the latest checkpoint that was kept for good.
    """

    kept: tuple[tuple[str, float], ...]
    gone: tuple[str, ...]
    preserved_at: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """How many checkpoints to keep.

    Attributes:
        newest: Number of the newest checkpoints to keep; 0 keeps all. With 0, the Saver
            tracks only those that it was given at its start, and none that it saves.
            TensorFlow's Saver does the same.
        every_secs: Of the checkpoints beyond `newest`, the first one after each
            interval of this length is kept for good. TensorFlow's Saver counts the
            intervals in the same way. But after a pause, such as a restart, it keeps
            one checkpoint for each interval that has passed; here only one is kept.
    """

    newest: int
    every_secs: float

    def plan(
        self,
        saved: Sequence[tuple[str, float]],
        preserved_at: float,
        may_go: Callable[[str], bool] = lambda path: True,
    ) -> RetentionPlan:
        """Return which checkpoints to keep and which to delete, after a new one.

        Args:
            saved: (path, seconds since 1970) of each checkpoint, oldest first; the last
                one is new. A program may set a time of infinity, which keeps a
                checkpoint for good.
            preserved_at: See `RetentionPlan`.
            may_go: Returns whether the checkpoint at a path may be deleted now. If not,
                the Saver still tracks it, and a later plan deletes it.
        """
        if not self.newest:
            return RetentionPlan(
                kept=tuple(saved[:-1]), gone=(), preserved_at=preserved_at
            )
        gone: list[str] = []
        late: list[tuple[str, float]] = []
        for path, at in saved[: -self.newest]:
            if at == math.inf:
                continue
            if at - preserved_at > self.every_secs:
                preserved_at += self._whole_intervals(at - preserved_at)
            elif may_go(path):
                gone.append(path)
            else:
                late.append((path, at))
        return RetentionPlan(
            kept=(*late, *saved[-self.newest :]),
            gone=tuple(gone),
            preserved_at=preserved_at,
        )

    def _whole_intervals(self, secs: float) -> float:
        """Return a duration rounded down to a multiple of `every_secs`."""
        return secs - secs % self.every_secs if self.every_secs else secs
