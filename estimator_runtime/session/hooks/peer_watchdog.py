"""Ends a training that waits for a task which does not answer."""

import logging
import threading
import time
import weakref

import tensorflow as tf

from estimator_runtime import last_words, peers, reporting, waits
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.finish import Finish
from estimator_runtime.silence import LOOK_EVERY_SECS, Silence
from estimator_runtime.silence import concerns as concerns_of

_logger = logging.getLogger(__name__)


def hooks_of(master, max_wait_secs, checkpoint_dir):
    """Give the hooks of a training that look after other tasks.

    Args:
        master: The server that it trains on; "" is none, and looks after nobody.
        max_wait_secs: How long the chief may be away; None for no limit.
        checkpoint_dir: Where the end of the training is noted, or None.
    """
    if not master:
        return []
    task = peers.this_task()
    concerns = concerns_of(
        task.cluster,
        task.task_type,
        task.task_index,
        waits.peer_timeout_secs(),
        max_wait_secs,
    )
    if not concerns:
        return []
    finish = Finish(checkpoint_dir) if checkpoint_dir else None
    if any(concern.is_partner for concern in concerns):
        return [SilentPartnersHook(concerns, finish)]
    return [SilentPeersHook(concerns, finish)]


class SilentPeersHook(tf.compat.v1.train.SessionRunHook):
    """Asks, on a thread of its own, whether the tasks that a step may need are there.

    For as long as a session is open, and the training goes on: whoever makes a session
    has deadlines of its own. When a task has been missing for too long, this process
    ends with status 1, because a step that hangs in TensorFlow can be ended in no other
    way; what was saved before is what is left.

    Args:
        concerns: The `silence.Concern`s of this task.
        finish: The `Finish` of the training; None where nobody takes note of its end.
    """

    def __init__(self, concerns, finish=None):
        self._concerns, self._finish = concerns, finish
        self._is_over = False
        # The number of the step that is being taken; None between two, or if unknown.
        self._step: int | None = None
        self._training: weakref.ref | None = None

    def belong_to(self, training):
        """Ask no more when this MonitoredSession has been closed, for any reason."""
        self._training = weakref.ref(training)

    def after_create_session(self, session, coord):
        """Ask from here on."""
        threading.Thread(
            target=self._watch,
            args=(coord,),
            name="estimator_runtime peers",
            daemon=True,
        ).start()

    def steps_until_due(self, global_step):
        """Let any step do; see `loop.cadence`."""

    def end(self, session):
        """Ask no more: what is saved now needs its time, and others have left."""
        self._is_over = True

    def _watch(self, coord):
        silence = Silence(self._concerns)
        while not self._wait_for_end(coord):
            # Only then, because that is a look into the model directory.
            if silence.misses_any and self._has_finished():
                return
            problem = silence.look(self._step)
            if problem and not self._has_ended(coord) and not self._has_finished():
                _give_up(problem)

    def _wait_for_end(self, coord):
        """Wait until the next look; tell whether there is none."""
        return coord.wait_for_stop(LOOK_EVERY_SECS) or self._is_over

    def _has_ended(self, coord):
        return coord.should_stop() or self._is_over

    def _has_finished(self):
        return self._finish is not None and self._finish.step() is not None


class SilentPartnersHook(SilentPeersHook):
    """The same where all trainers take each step together, and none without the others.

    TensorFlow then notices no end of another one either, or makes session after session
    that wait for it: so these are watched until the training is closed.
    """

    def __init__(self, concerns, finish=None):
        super().__init__(concerns, finish)
        self._count = 0
        self._is_watching = False

    def after_create_session(self, session, coord):
        """Ask from the first session on."""
        if not self._is_watching:
            self._is_watching = True
            super().after_create_session(session, coord)

    def before_run(self, run_context):
        """Note that a step begins, or begins again after it has failed."""
        self._step = self._count

    def after_run(self, run_context, run_values):
        """Note that it has ended."""
        self._count += 1
        self._step = None

    def _wait_for_end(self, coord):
        time.sleep(LOOK_EVERY_SECS)
        return self._has_ended(coord)

    def _has_ended(self, coord):
        if self._is_over or self._training is None:
            return self._is_over
        training = self._training()
        return training is None or training._sess is None


def _give_up(problem):
    last_words.say(lambda: _logger.error("%s", problem))
    reporting.send_error(PeerTimeoutError)
    reporting.close()
    last_words.end(1)
