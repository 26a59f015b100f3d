"""Nodes of a Ray cluster that give notice, or are gone: their tasks have to move."""

import logging
import threading

from estimator_runtime.launch import ray_cluster
from estimator_runtime.launch.task import Leaving

_logger = logging.getLogger(__name__)
_LOOK_EVERY_SECS = 2.0


class Notices:
    """Tells once of each node with an address of the job that is about to go.

    It also ends what waits to be started on a node that is gone.
    """

    def __init__(self, seats, console, is_closing):
        """Know the seats; nobody looks yet.

        Args:
            seats: The `Seat` of every task.
            console: Where to say it.
            is_closing: A `threading.Event`, set at the end of the job.
        """
        self._seats, self._console, self._is_closing = seats, console, is_closing

    def open(self, events):
        """Look from now on, and put a `task.Leaving` into the queue for each notice."""
        threading.Thread(
            target=self._watch,
            args=(events,),
            name="estimator_runtime notices",
            daemon=True,
        ).start()

    @property
    def is_given(self):
        """Whether all that have an address have to move."""
        return any(seat.is_leaving for seat in self._seats)

    def _watch(self, events):
        while not self._is_closing.wait(_LOOK_EVERY_SECS):
            self._look(events)

    def _look(self, events):
        for seat in self._seats:
            try:
                seat.give_up_lost_start()
            except Exception:  # the next look is as good, and notices have to be seen
                _logger.debug("cannot look after %s", seat.task, exc_info=True)
        leaving = ray_cluster.leaving()
        # An evaluator is started again when its node is gone: nobody knows it.
        told = [
            seat
            for seat in self._seats
            if seat.node_id in leaving and not (seat.is_movable or seat.is_leaving)
        ]
        # Not those that are done, as while an evaluator evaluates the last model.
        is_busy = any(it.has_run and not it.is_movable for it in self._seats)
        then = ": stopping the job with a checkpoint, to place it anew"
        for seat in told:
            seat.is_leaving = True
        if told:
            events.put(Leaving())
        for seat in told:
            self._console.say(
                f"node {seat.node} of {seat.task} is about to go"
                f"{then if is_busy else ''}"
            )
