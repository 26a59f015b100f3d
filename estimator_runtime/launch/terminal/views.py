"""Ways to show how far a job is: rows on a terminal, or a line now and then."""

import importlib.util

from estimator_runtime.time_left import time_left

_LINE_SECS = 10.0


def choose(mode, console, status):
    """Give the way to show a job that a mode stands for.

    Args:
        mode: "bar", "plain", "none", or "auto": a bar on a terminal, else lines.
        console: Where it is shown. Where that is no terminal, nothing can be drawn
            anew below the lines of the tasks: a bar is lines there.
        status: The `Status` of the job.

    Returns:
        What has `show(now)`, to be called often.
    """
    if mode == "auto":
        mode = "bar" if importlib.util.find_spec("tqdm") is not None else "plain"
    if mode == "none":
        return Nothing()
    if not console.is_terminal:
        return Lines(console, status)
    return Rows(console, status) if mode == "bar" else StatusLine(console, status)


class Nothing:
    """Shows nothing."""

    def show(self, now):
        """Show nothing."""


class Rows:
    """A row for each task and a bar for the whole job, below all other lines."""

    def __init__(self, console, status):
        self._console, self._status = console, status

    def show(self, now):
        """Draw them, if it is time."""
        seen = self._status.look(now)
        if seen is not None:
            bar = total(seen, self._console.columns, self._console.can_unicode)
            each = [(task.name, describe(task)) for task in seen.tasks]
            self._console.status([*each, ("total", bar)])


class StatusLine:
    """One line below all others."""

    def __init__(self, console, status):
        self._console, self._status = console, status

    def show(self, now):
        """Draw it, if it is time."""
        seen = self._status.look(now)
        if seen is not None:
            self._console.status([("", line(seen))])


class Lines:
    """A line each ten seconds, among the others; none for a job of seconds."""

    def __init__(self, console, status):
        self._console, self._status = console, status
        self._said_at = None
        self._step = 0

    def show(self, now):
        """Write it, if it is time and there were steps."""
        if self._said_at is None:
            self._said_at = now
        seen = self._status.look(now)
        if seen is None or now - self._said_at < _LINE_SECS or seen.step == self._step:
            return
        self._said_at, self._step = now, seen.step
        self._console.say(line(seen))


def line(seen):
    """Say in one line how far a job is.

    Rates are of the last seconds. The total is that of the global step; the others are
    what each task has trained itself.
    """
    of = "" if seen.last_step is None else f" of {seen.last_step}"
    parts = [f"step {seen.step}{of}"]
    if seen.rate is not None:
        each = ", ".join(
            f"{task.name} {task.rate:.1f}"
            for task in seen.tasks
            if task.rate is not None
        )
        parts.append(f"{seen.rate:.1f} steps/s" + (f" ({each})" if each else ""))
    if seen.loss is not None:
        parts.append(f"loss {seen.loss:.4g}")
    left = time_left(seen.step, seen.last_step, seen.rate)
    if left is not None:
        parts.append(f"{left} left")
    saved = "none" if seen.saved_step is None else seen.saved_step
    parts.append(f"checkpoint {saved}")
    for task in seen.tasks:
        if task.metrics:
            parts.append(f"evaluated: {_metrics(task.metrics)}")
    if seen.restarts:
        parts.append(f"restarts {seen.restarts}")
    return " | ".join(parts)


def describe(task):
    """Say in a few words how far a task is."""
    parts = [task.state] if task.state else []
    if task.step is not None:
        parts.append(f"step {task.step}")
    if task.rate is not None:
        parts.append(f"{task.rate:.1f} steps/s")
    if task.loss is not None:
        parts.append(f"loss {task.loss:.4g}")
    if task.metrics:
        parts.append(f"evaluated: {_metrics(task.metrics)}")
    return ", ".join(parts)


def total(seen, columns, can_unicode):
    """Draw the bar of the whole job; without a last step, a count.

    Args:
        seen: The `JobStatus`.
        columns: How wide it may be.
        can_unicode: Whether the terminal shows more than ASCII.
    """
    from tqdm import tqdm

    remarks = {}
    if seen.loss is not None:
        remarks["loss"] = f"{seen.loss:.4g}"
    if seen.saved_step is not None:
        remarks["saved"] = f"step {seen.saved_step}"
    if seen.restarts:
        remarks["restarts"] = str(seen.restarts)
    step = seen.step
    if seen.last_step is not None:
        step = min(step, seen.last_step)  # workers may take a few steps more
    return tqdm.format_meter(
        step,
        seen.last_step,
        seen.elapsed_secs,
        ncols=columns,
        ascii=not can_unicode,
        unit="step",
        rate=seen.rate,
        postfix=", ".join(f"{name}={text}" for name, text in remarks.items()),
    )


def _metrics(metrics):
    shown = [
        f"{name} {value:.5g}"
        for name, value in metrics.items()
        if name != "global_step"
    ]
    at = f" at step {metrics['global_step']:.0f}" if "global_step" in metrics else ""
    return ", ".join(shown) + at
