"""One line on how far a job is."""

_EVERY_SECS = 1.0


class Status:
    """Makes the status line of a job: `step 300 | 98.0 steps/s (chief 49.1, ...)`.

    Rates are of the time since the line before. The total is that of the global step;
    the others are what each task has trained itself.
    """

    def __init__(self, watches, record):
        """Know the `Watch` of every task, and the `Record` of the job."""
        self._watches, self._record = watches, record
        self._at = None
        self._step = 0
        self._counts = {}

    def line(self, now):
        """Give the line; None if it is too early for a new one."""
        if self._at is not None and now - self._at < _EVERY_SECS:
            return None
        elapsed = None if self._at is None else now - self._at
        self._at = now
        parts = self._progress(elapsed)
        _, saved = self._record.checkpoint()
        parts.append(f"checkpoint {'none' if saved is None else saved}")
        for watch in self._watches:
            if "metrics" in watch.report:
                metrics = watch.report["metrics"].items()
                shown = ", ".join(f"{name} {value:.5g}" for name, value in metrics)
                parts.append(f"evaluated: {shown}")
        if self._record.restarts:
            parts.append(f"restarts {self._record.restarts}")
        return " | ".join(parts)

    def _progress(self, elapsed):
        running = [watch for watch in self._watches if watch.is_running]
        counts = {
            watch.run: watch.report["steps_here"]
            for watch in running
            if "steps_here" in watch.report
        }
        # A restored checkpoint may be older: the newest of those who run now counts.
        step = max((watch.report.get("step", 0) for watch in running), default=0)
        parts = [f"step {step}"]
        if elapsed and step > self._step:
            each = ", ".join(
                f"{run.task} {(count - self._counts[run]) / elapsed:.1f}"
                for run, count in counts.items()
                if run in self._counts
            )
            total = (step - self._step) / elapsed
            parts.append(f"{total:.1f} steps/s" + (f" ({each})" if each else ""))
        self._step, self._counts = step, counts
        return parts
