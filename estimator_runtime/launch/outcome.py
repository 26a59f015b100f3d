"""The outcome of a job: its exit status, the reason, and the newest checkpoint."""

import dataclasses

from estimator_runtime.checkpoint.restore.recovery import newest_as_text
from estimator_runtime.launch.supervisor.restart_policy import STOPPED
from estimator_runtime.output.terminal import printable

# The exit status of a job whose training is complete, but whose evaluation has failed.
EVALUATION_FAILED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_status: 0 for success, 3 if the training is complete but the evaluation has
            failed, 130 after Ctrl-C, 143 after SIGTERM or SIGHUP, else 1.
        reason: One line that says what happened, and to which task.
        task: The first task that failed, as text, or None.
        excerpt: Lines of that task that explain the failure: what it has said of its
            error, or its last lines.
        log: Path of the log of that task, or None.
        log_dir: Folder of all logs if it is a temporary folder that was kept, else
            None.
        checkpoint: Path of the newest complete checkpoint, or None.
        unknown: Why the checkpoint is not known here, or None.
        spoilt: Which newer checkpoints are not good, and why, or None.
        restarts: The number of restarts.
        is_machine_lost: Whether the job has failed because a machine is gone.
    """

    exit_status: int
    reason: str
    task: str | None = None
    excerpt: tuple[str, ...] = ()
    log: str | None = None
    log_dir: str | None = None
    checkpoint: str | None = None
    unknown: str | None = None
    spoilt: str | None = None
    restarts: int = 0
    is_machine_lost: bool = False

    def __str__(self) -> str:
        """Return the outcome as a text of several lines for the user."""
        lines = [self.reason]
        lines += [f"  {line}" for line in self.excerpt]
        if self.log:
            lines.append(f"log: {self.log}")
        elif self.log_dir:
            lines.append(f"all logs: {self.log_dir}")
        if self.exit_status:
            text = printable(newest_as_text(self.checkpoint, self.unknown, self.spoilt))
            can_go_on = self.exit_status in STOPPED or self.is_machine_lost
            if self.checkpoint and not self.spoilt and can_go_on:
                text += "; the same command goes on from there"
            lines.append(text)
        return "\n".join(lines)
