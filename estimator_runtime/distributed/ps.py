"""A parameter server of a cluster, which ends after the trainers that use it.

SIGTERM may come to all processes of a job at once: the machine shuts down, or its
scheduler stops the job. The trainers then save the variables that the ps holds. So
under our launcher the ps stays while any of them listens, and the launcher ends it with
the same signal when none does any more. Under another scheduler, an environment
variable sets how long the ps may stay.
"""

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

from estimator_runtime import reporting
from estimator_runtime.config import waits
from estimator_runtime.distributed.finish_note import FinishNote
from estimator_runtime.distributed.liveness import PeerLiveness, any_trainer
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.signals import exit
from estimator_runtime.signals.inbox import STATUS_OF_SIGNALS, SignalInbox

_logger = logging.getLogger(__name__)
_POLL_SECS = 0.5


class ParameterServer:
    """Decides when a ps may end, and handles the stop signals until then.

    A ps is released when the training has ended, or a stop signal has come, and all
    trainers have left. Under a launcher, only the signal counts: the program may train
    again, and between two runs of its chief no trainer may be there.

    Handlers are installed where the program has none of its own. Without a launcher and
    a grace period, or outside of the main thread, none are installed.

    Args:
        model_dir: The model directory of the training.
        cluster: Job name to addresses.
        timeout_secs: How long there may be no trainer at all; None for no limit.

    Raises:
        ConfigError: If the grace period is not a number of seconds.
    """

    def __init__(
        self,
        model_dir: str | bytes | os.PathLike[str],
        cluster: Mapping[str, Sequence[str]],
        timeout_secs: float | None,
    ) -> None:
        self._note = FinishNote(model_dir)
        meanwhile = "this ps waits for them"
        self._liveness = PeerLiveness([any_trainer(cluster, timeout_secs, meanwhile)])
        self._stopped_by: int | None = None
        self._deadline = math.inf
        # Under a launcher there is no deadline: it ends the ps itself.
        self._is_launched = reporting.is_on()
        self._grace_secs = math.inf if self._is_launched else waits.ps_grace_secs()
        # TensorFlow's own ps waits in a call during which Python runs no handler.
        is_main = threading.current_thread() is threading.main_thread()
        waits_for_trainers = is_main and self._grace_secs > 0
        self._inbox = SignalInbox(self._handle) if waits_for_trainers else None

    def serve(self) -> int:
        """Wait until this ps is released, and return its exit status.

        That is 0, or 143 if SIGTERM has released it.

        Raises:
            PeerTimeoutError: If there is no trainer for longer than a session may take
                to be created.
        """
        while not self._is_released():
            self._liveness.check_if_due()
            self.wait(_POLL_SECS)
        return 0 if self._stopped_by is None else STATUS_OF_SIGNALS + self._stopped_by

    def serve_and_exit(self) -> NoReturn:
        """End this process when this ps is released, from any thread.

        TensorFlow's distribute coordinator waits for its server in a call that never
        returns.
        """
        try:
            status = self.serve()
        except PeerTimeoutError as error:
            message = str(error)
            exit.call_and_flush(lambda: _logger.error("%s", message))
            status = 1
        exit.end(status)

    def wait(self, secs: float) -> None:
        """Wait for some seconds, or until a signal comes; in any thread."""
        if self._inbox is None:
            time.sleep(secs)
        elif self._inbox.wait(secs):
            for number in self._inbox.read():
                self._handle(number, None)

    def restore(self) -> None:
        """Restore the default handlers, except where the program has set its own."""
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.close()

    def _is_released(self) -> bool:
        # A launcher sends the signal when the job is done. Then the model directory is
        # not read, which may hang.
        takes = self._inbox is not None and signal.SIGTERM in self._inbox.numbers
        is_by_launcher = self._is_launched and takes
        has_ended = not is_by_launcher and self._note.step() is not None
        is_over = self._stopped_by is not None or has_ended
        if is_over and not self._liveness.has_any():
            why = "the training has ended" if has_ended else "no trainer is left"
            TRAINING_LOG.info("%s; this ps is done", why)
            return True
        if time.monotonic() < self._deadline:
            return False
        _logger.warning(
            "the grace period of this ps is over (%s); it ends before the trainers",
            waits.PS_GRACE_VARIABLE,
        )
        return True

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._stopped_by is None:
            self._stopped_by = number
            self._deadline = time.monotonic() + self._grace_secs
