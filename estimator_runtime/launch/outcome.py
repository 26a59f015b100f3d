"""How a job ended."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_status: 0 for success, 130 after Ctrl-C, 143 after SIGTERM or SIGHUP,
            else 1.
        reason: One line: what happened, and to which task.
        task: The first task that failed, as text, or None.
        excerpt: Its last lines that say something: the Python traceback, if any.
        log: Path of its whole log, or None.
        checkpoint: Path of the newest checkpoint that is whole, or None.
        restarts: How many restarts there were.
    """

    exit_status: int
    reason: str
    task: str | None = None
    excerpt: tuple[str, ...] = ()
    log: str | None = None
    checkpoint: str | None = None
    restarts: int = 0

    def __str__(self):
        """Give the outcome as a user reads it, on several lines."""
        lines = [self.reason]
        lines += [f"  {line}" for line in self.excerpt]
        if self.log:
            lines.append(f"whole log: {self.log}")
        if self.exit_status:
            lines.append(
                f"newest good checkpoint: {self.checkpoint}"
                if self.checkpoint
                else "no checkpoint was saved"
            )
        return "\n".join(lines)
