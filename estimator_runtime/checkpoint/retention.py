"""Which checkpoints stay when a new one has come."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What becomes of a Saver's checkpoints.

    Attributes:
        kept: (path, seconds since 1970) of those that the Saver still has in view,
            oldest first.
        gone: Paths of those to delete.
        preserved_at: When the time begins after which the next one is kept for good, in
            seconds since 1970: the last multiple of `Policy.every_secs`, from when the
            training began, before the last one that was.
    """

    kept: tuple[tuple[str, float], ...]
    gone: tuple[str, ...]
    preserved_at: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """How many checkpoints stay.

    Attributes:
        newest: The newest to keep; 0 keeps all. Then those are in view that the Saver
            was told of at its start, and none that it saves, as with TensorFlow's.
        every_secs: Of those that are too many, the first one stays for good after each
            so many seconds. TensorFlow's Saver counts them in the same way; but after
            a pause, a restart also, one stays here, and there one for each of them.
    """

    newest: int
    every_secs: float

    def plan(self, saved, preserved_at, may_go=lambda path: True):
        """Plan what becomes of checkpoints, of which the last one is new.

        Args:
            saved: (path, seconds since 1970) of each, oldest first. A time of
                infinity, which a program may set, keeps one for good.
            preserved_at: As `Plan` has it.
            may_go: Tells, of a path, whether it may be deleted now; if not, it stays
                in view, and goes when a later plan finds that it may.

        Returns:
            `Plan`.
        """
        if not self.newest:
            return Plan(kept=tuple(saved[:-1]), gone=(), preserved_at=preserved_at)
        gone, late = [], []
        for path, at in saved[: -self.newest]:
            if at == math.inf:
                continue
            if at - preserved_at > self.every_secs:
                preserved_at += self._whole_times(at - preserved_at)
            elif may_go(path):
                gone.append(path)
            else:
                late.append((path, at))
        return Plan(
            kept=(*late, *saved[-self.newest :]),
            gone=tuple(gone),
            preserved_at=preserved_at,
        )

    def _whole_times(self, secs):
        """Give these seconds without what is beyond a multiple of `every_secs`."""
        return secs - secs % self.every_secs if self.every_secs else secs
