"""Shows the restarts of a job's tasks in TensorBoard, beside what the tasks write."""

import os
import time

from estimator_runtime.launch.event_writer import EventFile

# A folder of its own in the model directory: TensorBoard takes it for a run.
RUN = "launcher"


class RestartScalars:
    """Writes how often each task was restarted, and all of them, whenever that changes.

    `restarts/job` counts as the job's outcome does: a gang that is started again is one
    restart, and one of each of its tasks.

    Args:
        watches: The `Watch` of every task.
        record: The `Record` of the job, which knows its model directory.
        console: Where it is said, once, that they cannot be written.
        clock: Gives seconds since 1970.
    """

    def __init__(self, watches, record, console, clock=time.time):
        self._watches, self._record, self._console = watches, record, console
        self._clock = clock
        self._file = None
        self._is_given_up = False
        self._written: dict[str, int] = {}
        self._step = 0

    def look(self, is_end=False):
        """Write what has changed; at the end of the job, all of it once more."""
        reported = [watch.report.get("step", 0) for watch in self._watches]
        self._step = max(self._step, *reported)
        folder = self._record.model_dir
        if folder is None or self._record.is_remote or self._is_given_up:
            return
        counts = {
            f"restarts/{watch.task.type}-{watch.task.index}": watch.run.attempt
            for watch in self._watches
            if watch.run is not None
        }
        counts["restarts/job"] = self._record.restarts
        if counts == self._written and not is_end:
            return
        try:
            now = self._clock()
            self._file = self._file or EventFile(os.path.join(folder, RUN), now)
            self._file.write(counts, self._step, now)
        except OSError as error:
            self._is_given_up = True
            self._console.say(
                f"the restarts cannot be written for TensorBoard: {error.strerror}"
            )
        self._written = counts
