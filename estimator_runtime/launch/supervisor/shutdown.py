"""Ends tasks in order: with a request first, and by force when their time is over."""

import signal

from estimator_runtime.launch.task import Ended
from estimator_runtime.role import TaskType

# A ps has nothing to save, and an evaluator has evaluated by then.
_OTHERS_SECS = 2.0
# Within it what SIGKILL was sent to is gone, and on Ray its actor, however far away.
_GONE_SECS = 15.0


class Shutdown:
    """Ends the tasks of a job: the trainers first, while they can still save.

    Where each trains on its own, with a ps, the one that leads is the last of them: its
    checkpoint has the steps of all. Where it takes the steps for all, with gradients of
    all (SyncReplicasOptimizer), it is the first: it could not end its step without the
    others, and they have nothing to save. A gang stops together.

    Attributes:
        has_begun: Whether all tasks are to end.
    """

    def __init__(self, tasks, watches, trainers, grace_secs, console, is_gang=False):
        """Know all tasks.

        Args:
            tasks: The `Tasks` that can signal them.
            watches: The `Watch` of every task.
            trainers: Those of them that train; the first of them leads.
            grace_secs: What a trainer has for its last step and checkpoint.
            console: Where to say who was killed for not ending in time.
            is_gang: Whether they take each step together.
        """
        self._tasks, self._watches, self._trainers = tasks, watches, trainers
        self._grace_secs, self._is_gang = grace_secs, is_gang
        self._console = console
        self.has_begun = self._leader_is_first = False

    def begin(self, now, politely):
        """Let all tasks end; the trainers at once unless `politely`."""
        self.has_begun = True
        for watch in self._watches:
            watch.restart_at = None
        self._leader_is_first = self._leads_steps()
        for watch in self._first() if politely else self._trainers:
            if watch.is_running and not politely:
                self.kill(watch, now)
            elif watch.is_running and watch.kill_at is None:
                self._ask(watch, self._grace_secs, now)
        self.go_on(now)

    def go_on(self, now):
        """Let those end whose turn it is: the leader, then all that are no trainers."""
        leader, *others = self._trainers
        if leader.is_running and any(watch.failure.is_nan for watch in others):
            self.kill(leader, now)  # what it would save has the NaN too
        if self._leader_is_first and not leader.is_running:
            for watch in others:
                self.release(watch, now)
        if any(watch.is_running for watch in others):
            return
        if leader.is_running:
            if leader.kill_at is None and leader.killed_at is None:
                self._ask(leader, self._grace_secs, now)
            return
        for watch in self._watches:
            self.release(watch, now)

    def expect(self, watch, now):
        """Let a trainer save and end that stops by itself, together with another."""
        is_trainer = watch in self._trainers
        if is_trainer and watch.is_running and watch.kill_at is None:
            _give(watch, self._grace_secs, now)

    def make_way(self, now):
        """Let the trainers stop, in order, as all are about to lose their addresses.

        Those whose turn is later are asked by `clear`, whenever one has ended.
        """
        if self.has_begun:
            return
        first = [watch for watch in self._first() if watch.is_running]
        for watch in first or self._trainers:
            if watch.is_running and watch.kill_at is None:
                self._ask(watch, self._grace_secs, now)

    def clear(self, watch, gang, now):
        """End those that are about to get new addresses, whenever one has ended.

        Where each trains on its own and all ps are there, the one that leads can save
        what there is, when the others have ended: they have their time only if they
        were told, and then it has its own, and the ps live as long. Those who take
        each step together stop together, if one was told to.

        Args:
            watch: The one that has ended.
            gang: All of them.
            now: The time.
        """
        if watch.task.type == TaskType.EVALUATOR:
            return  # nobody waits for it, and those who save are not to be disturbed
        leader, *others = self._trainers
        servers = [each for each in gang if each.task.type == TaskType.PS]
        has_time = []
        if self._is_gang and watch.failure.is_stop:
            has_time = self._trainers
            for each in has_time:
                self.expect(each, now)
        elif (
            leader.is_running
            and not self._is_gang
            and all(each.is_running for each in servers)
        ):
            if self._leads_steps():
                # It could not end a step without them; if it is told too late, it can
                # save one that has ended.
                has_time = [leader, *servers] + (
                    others if leader.kill_at is not None else []
                )
                left = []
            else:
                told = [each for each in others if each.kill_at is not None]
                has_time = [leader, *servers, *told]
                left = [each for each in others if each.is_running]
            if not left and leader.kill_at is None:
                self._ask(leader, self._grace_secs, now)
        for each in gang:
            if each.is_running and each not in has_time:
                self.kill(each, now)

    def end_gang(self, watch, gang, now):
        """End those who are to be started again together with one that has ended.

        Args:
            watch: The one that has ended.
            gang: All of them.
            now: The time.
        """
        if watch.is_displaced:
            self.clear(watch, gang, now)
            return
        for each in filter(lambda each: each.is_running, gang):
            if watch.failure.is_stop:
                self.expect(each, now)
            else:
                # They wait for the one that is gone, and would not hear SIGTERM.
                self.kill(each, now)

    def release(self, watch, now):
        """Let a task end that has nothing more to do."""
        if watch.is_running and watch.kill_at is None:
            self._ask(watch, _OTHERS_SECS, now)

    def hurry(self, now):
        """Give nobody any more time."""
        for watch in self._watches:
            watch.kill_at, watch.given_secs = now, None

    def kill_overdue(self, now):
        """Kill those whose time is over."""
        for watch in self._watches:
            is_overdue = watch.kill_at is not None and now >= watch.kill_at
            if not (watch.is_running and is_overdue) or watch.killed_at is not None:
                continue
            if watch.given_secs is not None:
                within = f"within {watch.given_secs:g} s"
                self._console.say(f"{watch.task} did not end {within}: killing it")
            self.kill(watch, now)

    def immortal(self, now):
        """Give the ends of those that run on although they were killed some time ago.

        They hang in the kernel, or what should have told of their end does.
        """
        cause, status = "did not end after SIGKILL", -int(signal.SIGKILL)
        return [
            Ended(run=watch.run, status=status, cause=cause)
            for watch in self._watches
            if watch.is_running
            and watch.killed_at is not None
            and now - watch.killed_at >= _GONE_SECS
        ]

    def kill(self, watch, now):
        """End a task at once; once is enough."""
        if watch.killed_at is None:
            watch.killed_at = now
            self._tasks.signal(watch.run, signal.SIGKILL)

    def _leads_steps(self):
        """Tell whether the one that leads takes the steps for all."""
        leader = self._trainers[0]
        return leader.is_running and "synchronous" in leader.report

    def _first(self):
        """Give the trainers that are to stop before the others."""
        leader, *others = self._trainers
        if self._is_gang:
            return self._trainers
        return [leader] if self._leads_steps() else others

    def _ask(self, watch, secs, now):
        self._tasks.signal(watch.run, signal.SIGTERM)
        _give(watch, secs, now)


def _give(watch, secs, now):
    watch.kill_at, watch.given_secs = now + secs, secs
