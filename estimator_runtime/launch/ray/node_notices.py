"""The watch for Ray nodes that give notice or are gone, so that their tasks move."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from estimator_runtime.launch.ray import nodes
from estimator_runtime.launch.task import Events, Leaving
from estimator_runtime.launch.terminal.console import Console

if TYPE_CHECKING:
    from estimator_runtime.launch.ray.slot import Slot

_logger = logging.getLogger(__name__)
_LOOK_EVERY_SECS = 2.0


class Notices:
    """Reports, once each, the nodes with addresses of the job that are about to leave.

    It also ends runs that wait for their start on a node that is gone.
    """

    def __init__(
        self, slots: Sequence[Slot], console: Console, is_closing: threading.Event
    ) -> None:
        """Prepare the watch without starting it.

        Args:
            slots: The slot of every task.
            console: Where to report a notice.
            is_closing: An event that is set at the end of the job.
        """
        self._slots, self._console, self._is_closing = slots, console, is_closing

    def open(self, events: Events) -> None:
        """Start the watch, which puts a `task.Leaving` into the queue per notice."""
        threading.Thread(
            target=self._watch,
            args=(events,),
            name="estimator_runtime notices",
            daemon=True,
        ).start()

    @property
    def is_given(self) -> bool:
        """Whether a node has given notice, so that all tasks with addresses move."""
        return any(slot.is_leaving for slot in self._slots)

    def _watch(self, events: Events) -> None:
        """Check the nodes regularly until the end of the job."""
        while not self._is_closing.wait(_LOOK_EVERY_SECS):
            self._look(events)

    def _look(self, events: Events) -> None:
        """Check the nodes once."""
        for slot in self._slots:
            try:
                slot.give_up_lost_start()
            except Exception:  # the next check will do, and notices must not be missed
                _logger.debug("cannot look after %s", slot.task, exc_info=True)
        leaving = nodes.leaving()
        # An evaluator is restarted when its node is gone, as no task has its address.
        newly_leaving = [
            slot
            for slot in self._slots
            if slot.node_id in leaving and not (slot.is_movable or slot.is_leaving)
        ]
        # All may be done already, for instance while the evaluator evaluates the last
        # model.
        is_busy = any(it.has_run and not it.is_movable for it in self._slots)
        then = ": stopping the job with a checkpoint, to place it anew"
        for slot in newly_leaving:
            slot.is_leaving = True
        if newly_leaving:
            events.put(Leaving())
        for slot in newly_leaving:
            self._console.say(
                f"node {slot.node} of {slot.task} is about to go"
                f"{then if is_busy else ''}"
            )
