"""How a job ended."""

import dataclasses

from estimator_runtime.checkpoint import newest
from estimator_runtime.launch.restarts import STOPPED

# The exit status where the training is done, and only its evaluation has failed.
EVALUATION_FAILED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_status: 0 for success, 3 if all is trained but not evaluated, 130 after
            Ctrl-C, 143 after SIGTERM or SIGHUP, else 1.
        reason: One line: what happened, and to which task.
        task: The first task that failed, as text, or None.
        excerpt: Its last lines that say something: the Python traceback, if any.
        log: Path of its log, or None.
        is_log_whole: Whether that has all lines.
        log_dir: Folder of all logs, if it is a temporary one that was kept, or None.
        checkpoint: Path of the newest checkpoint that is whole, or None.
        unknown: Why that cannot be told here, or None.
        spoilt: Which are newer, but no good, and why, or None.
        restarts: How many restarts there were.
    """

    exit_status: int
    reason: str
    task: str | None = None
    excerpt: tuple[str, ...] = ()
    log: str | None = None
    is_log_whole: bool = True
    log_dir: str | None = None
    checkpoint: str | None = None
    unknown: str | None = None
    spoilt: str | None = None
    restarts: int = 0

    def __str__(self):
        """Give the outcome as a user reads it, on several lines."""
        lines = [self.reason]
        lines += [f"  {line}" for line in self.excerpt]
        if self.log:
            which = "whole log" if self.is_log_whole else "part of the log"
            lines.append(f"{which}: {self.log}")
        elif self.log_dir:
            lines.append(f"all logs: {self.log_dir}")
        if self.exit_status:
            lines.append(self._checkpoint_line())
        return "\n".join(lines)

    def _checkpoint_line(self):
        text = newest.as_text(self.checkpoint, self.unknown, self.spoilt)
        if self.checkpoint and not self.spoilt and self.exit_status in STOPPED:
            return f"{text}; the same command goes on from there"
        return text
