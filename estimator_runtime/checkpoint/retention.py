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
        preserved_at: When the last one was saved that is kept for good, or when the
            wait for the first of them began, in seconds since 1970.
    """

    kept: tuple[tuple[str, float], ...]
    gone: tuple[str, ...]
    preserved_at: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """How many checkpoints stay.

    Attributes:
        newest: The newest to keep; 0 keeps all, and none of them in view.
        every_secs: Of those that are too many, one stays for good each time that so
            many seconds lie between it and the last one that did.
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
            return Plan(kept=(), gone=(), preserved_at=preserved_at)
        gone, late = [], []
        for path, at in saved[: -self.newest]:
            if at == math.inf:
                continue
            if at - preserved_at > self.every_secs:
                preserved_at = at
            elif may_go(path):
                gone.append(path)
            else:
                late.append((path, at))
        return Plan(
            kept=(*late, *saved[-self.newest :]),
            gone=tuple(gone),
            preserved_at=preserved_at,
        )
