"""The restart counts of a job, as scalars for TensorBoard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from estimator_runtime.checkpoint.event_file import EventFile
from estimator_runtime.launch.supervisor.machine import TaskState
from estimator_runtime.launch.supervisor.record import Record

# A subfolder of the model directory, which TensorBoard shows as a run of this name.
_RUN = "launcher"


class RestartScalars:
    """Writes the restart counts of a job for TensorBoard, whenever one changes.

    `restarts/job` counts in the same way as the outcome of the job: the restart of a
    gang counts once for the job, and once for each of its tasks.

    Args:
        states: The state of every task.
        record: The record of the job, which has its model directory.
        clock: Returns the seconds since 1970.
    """

    def __init__(
        self,
        states: Sequence[TaskState],
        record: Record,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._states, self._record, self._clock = states, record, clock
        self._file: EventFile | None = None
        self._written: dict[str, int] = {}
        self._step = 0

    def update(self, is_end: bool = False) -> None:
        """Write the counts if one has changed, and again at the end of the job.

        Raises:
            OSError: If they cannot be written.
        """
        reported = [state.report.get("step", 0) for state in self._states]
        self._step = max(self._step, *reported)
        folder = self._record.model_dir
        if folder is None or self._record.is_remote:
            return
        counts = {
            f"restarts/{state.task.type}-{state.task.index}": state.last.run.attempt
            for state in self._states
            if state.last.run.attempt >= 0
        }
        counts["restarts/job"] = self._record.restarts
        if counts != self._written or is_end:
            now, self._written = self._clock(), counts
            self._file = self._file or EventFile(os.path.join(folder, _RUN), now)
            self._file.write(counts, self._step, now)
