"""The session that calls the hooks, and runs each step by a fetch plan."""

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.loop.caller_thread import CallingThread
from estimator_runtime.loop.fusion import while_loop
from estimator_runtime.loop.fusion.idle_runs import CompletedRun, IdleRuns
from estimator_runtime.loop.global_step import adds_one
from estimator_runtime.loop.graph import ops as graph_ops
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph
from estimator_runtime.loop.hooks.idle import IdleHooks
from estimator_runtime.loop.packing.requests import PackedRequests, PackingLog
from estimator_runtime.loop.plan import MAX_PLANS, Plan, Planner, key_of
from estimator_runtime.loop.run_length import RunLength
from estimator_runtime.loop.step_kind import StepKind
from estimator_runtime.signals import request
from estimator_runtime.signals.session_close import closable, slow_close_logged
from estimator_runtime.tf_internals import hooks as tf_hooks
from estimator_runtime.tf_internals import sessions

CALLER = "caller"
# Messages of a server that has lost the session, and of one that refuses a step because
# it has seen the number of its request. A ps may have applied that step: it is run
# again, as after any lost session.
_SESSION_LOST = ("Session handle is not found", "request was received twice")
# A thread waits so long for another one's run of steps. By then, the run is in its last
# step, unless that step waits for the thread.
_MOST_SECS_OF_RUN = 10.0


class HookedSession(sessions.StockHookedSession):
    """TensorFlow's hooked session, with changes for a lost task or session.

    It distinguishes a session that another task has lost from a cancelled one, and its
    `close` does not wait forever.

    Attributes:
        step_kind: The way in which the last step was run; None before the first.
    """

    step_kind: StepKind | None = None

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: config_pb2.RunOptions | None = None,
        run_metadata: config_pb2.RunMetadata | None = None,
    ) -> Any:
        """Run one step with the hooks; see TensorFlow's `MonitoredSession.run`."""
        self.step_kind = StepKind.STOCK
        with _naming_lost_sessions():
            return super().run(fetches, feed_dict, options, run_metadata)

    def close(self) -> None:
        """Close the session, after the hooks have counted all steps."""
        self.sync_hooks()
        # TensorFlow closes a lost session while it handles the error of the loss.
        is_lost = isinstance(sys.exc_info()[1], sessions.PREEMPTION_ERRORS)
        session = self._sess  # type: ignore[has-type]
        self._sess = session and closable(session, request.is_requested(), is_lost)
        # After a loss, the bounded close itself logs what it waits for.
        with contextlib.nullcontext() if is_lost else slow_close_logged():
            super().close()

    def sync_hooks(self) -> None:
        """Bring the hooks to the state that they would have after seeing every step."""


class PlannedSession(HookedSession):
    """TensorFlow's hooked session, with the fetches of a step compiled once.

    It calls every hook at every step, in the same order, with the same arguments and
    results, except at steps at which no hook would do anything (see `IdleHooks`).
    Several of those may run in one call (see `IdleRuns`), until the program's calls
    show that each has to be one step: it calls the session for something else, too, or
    from several threads. A step with feeds, run options or run metadata, from the
    caller or from a hook, goes through `Session.run`. So does every step of a session
    that cannot have plans. On a gRPC master, a step is packed if possible (see
    `packing`).

    Args:
        sess: The session that runs the steps.
        hooks: Hooks of the session.
        packing_log: Logs which transfers between tasks are packed; None packs none, as
            in a session of this process.
        run_length: How long a run of several steps may be. This session shares it with
            those that replace it.
    """

    def __init__(
        self,
        sess: tf.compat.v1.Session,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        packing_log: PackingLog | None = None,
        run_length: RunLength | None = None,
    ) -> None:
        super().__init__(sess, hooks)
        self._length = run_length or RunLength(1, 0)
        self._should_stop = False
        self._calling_thread = CallingThread(sess)
        self._planner = Planner(sess, self._calling_thread.flush_for)
        self._packed = packing_log and PackedRequests(sess, packing_log)
        # Key of the caller's fetches to the result of `_is_step`, and the fetches.
        self._are_steps: dict[object, tuple[bool, object]] = {}
        self._idle = IdleHooks(hooks)
        if obstacle := self._planner.obstacle or self._idle.obstacle:
            self._length.rule_out(obstacle)
        self._runs = IdleRuns(sess, hooks, self._calling_thread, self._length)
        # Held by a run. A step of another thread waits for its end, so that it finds
        # the steps counted. A run may itself wait for any other call.
        self._running = threading.RLock()
        self._step_key: object = None  # of the fetches that make up a step
        self._end_of_data: Exception | None = None  # to be raised by the next step
        self._thread: int | None = None  # the one that has called `run` first
        self._is_shared = False  # whether another thread has called it too
        # The global step that the next step begins with, unless the program changes it.
        self._expected = -1

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: config_pb2.RunOptions | None = None,
        run_metadata: config_pb2.RunMetadata | None = None,
    ) -> Any:
        """Run one step with the hooks; see TensorFlow's `MonitoredSession.run`."""
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        self._note_thread()
        is_plain = not feed_dict and options is None and run_metadata is None
        self._note_call(fetches, is_plain)
        idle_plan = self._idle_plan(fetches) if is_plain else None
        if idle_plan is not None:
            return self._run_idle(idle_plan, fetches)
        self.forget_end_of_data()
        self._idle.interrupt()
        context = tf_hooks.SessionRunContext(
            tf_hooks.SessionRunArgs(fetches, feed_dict), self._sess
        )
        wanted = {CALLER: fetches}
        options = options or config_pb2.RunOptions()
        run_metadata = run_metadata or config_pb2.RunMetadata()
        feeds = self._call_hook_before_run(context, wanted, feed_dict, options)
        is_plain = is_plain and not options.ByteSize()
        plan = self._planner.plan(wanted) if is_plain and not feeds else None
        if plan is not None:
            self.step_kind = StepKind.PLANNED
            raw = self._run_plan(plan, fetches)
            outputs = plan.results(raw)
        else:
            outputs = self._run_unplanned(
                fetches, wanted, feeds, options, run_metadata, is_plain
            )
        self._call_after_run(context, outputs, options, run_metadata)
        if plan is not None and not self._idle.obstacle and self._is_step(fetches):
            self._begin_idle(plan, fetches, raw)
        return outputs[CALLER]

    def _note_thread(self) -> None:
        """Record which thread has called; after a second one, no step is idle."""
        thread = threading.get_ident()
        self._thread = self._thread or thread
        if thread != self._thread:
            self._is_shared = True
            self._idle.forbid()
            self._length.run_singly("is run by several threads")

    def _note_call(self, fetches: Any, is_plain: bool) -> None:
        """Run steps singly from now on if a call shows that each has to be one step.

        That is a call for anything else once there has been a step: the program decides
        by its number of steps when it makes such a call.
        """
        if self._is_shared:
            self._wait_for_run(fetches)
        elif self._length.is_single:
            pass
        elif self._step_key is not None:
            if not is_plain or key_of(fetches) != self._step_key:
                self._length.run_singly("takes turns with other calls of the session")
        elif self._is_step(fetches):
            self._step_key = key_of(fetches)
            if not is_plain:
                self._length.rule_out("is fed, or has run options, by the caller")

    def _wait_for_run(self, fetches: Any) -> None:
        """Wait for the end of another thread's run of steps, to run a step after it."""
        if self._step_key is None or not self._is_step(fetches):
            return  # no run can be under way, or it may itself wait for this call
        if self._running.acquire(timeout=_MOST_SECS_OF_RUN):
            self._running.release()

    def _begin_idle(self, plan: Plan, fetches: Any, raw: Any) -> None:
        """Begin an idle stretch, if possible, after a step that the hooks have seen."""
        global_step = self._calling_thread.global_step
        reads = [raw[place] for place in plan.places_of(global_step.reads)]
        self._idle.begin(plan, global_step, fetches, reads)

    def _idle_plan(self, fetches: Any) -> Plan | None:
        """Return the plan of the next step if no hook has to see it; else None."""
        plan = self._idle.plan_for(fetches)
        # A session with a plan is of TensorFlow's own class, so it can be asked.
        return None if plan is None or sessions.is_closed(self._sess) else plan

    def _run_unplanned(
        self,
        fetches: Any,
        wanted: Mapping[Any, Any],
        feeds: Mapping[Any, Any],
        options: config_pb2.RunOptions,
        run_metadata: config_pb2.RunMetadata,
        is_plain: bool,
    ) -> Any:
        """Run a request by a packed step, or by `Session.run`.

        If `is_plain`, nobody has given run options or run metadata.
        """
        with _naming_lost_sessions():
            packed = self._packed and self._packed.get(fetches, wanted, feeds, options)
            if packed:
                self.step_kind = StepKind.PACKED
                given = (None, None) if is_plain else (options, run_metadata)
                return packed.run(feeds, *given)
            self.step_kind = StepKind.STOCK
            return self._sess.run(
                fetches=wanted,
                feed_dict=feeds,
                options=options,
                run_metadata=run_metadata,
            )

    def sync_hooks(self) -> None:
        """Bring the hooks to the state that they would have after seeing every step."""
        self._idle.end()

    def forget_end_of_data(self) -> None:
        """Forget an end of data that no call has raised yet, as it may start again.

        If the data has really ended, the next step finds that out.
        """
        self._end_of_data = None

    def _run_idle(self, plan: Plan, fetches: Any) -> Any:
        """Run steps that no hook is due to see, and return results of the last one.

        If its values are not the expected ones, the hooks see that step after all.
        """
        idle = self._idle
        if self._end_of_data is not None:
            error, self._end_of_data = self._end_of_data, None
            idle.end()
            raise error
        run, is_seen = self._run_until_due(plan)
        self.step_kind = StepKind.FUSED if run.steps > 1 else StepKind.IDLE
        if run.error is not None:
            if run.steps and isinstance(run.error, tf.errors.OutOfRangeError):
                # The steps before the end of the data are trained. The next call
                # raises the error.
                self._end_of_data = run.error
                return idle.results(run.raw)
            idle.end()
            raise run.error
        if not is_seen:
            return idle.results(run.raw)
        idle.end()
        context = tf_hooks.SessionRunContext(
            tf_hooks.SessionRunArgs(fetches), self._sess
        )
        # Until hooks are due, they ask for the same at every step.
        for hook in self._hooks:
            hook.before_run(context)
        outputs = plan.results(run.raw)
        options, run_metadata = config_pb2.RunOptions(), config_pb2.RunMetadata()
        self._call_after_run(context, outputs, options, run_metadata)
        return outputs[CALLER]

    def _run_until_due(self, plan: Plan) -> tuple[CompletedRun, bool]:
        """Run a step of the idle stretch, or several, and count them.

        Returns:
            The run, and whether the hooks have to see its last step, which then is not
            counted.
        """
        idle = self._idle
        with self._running:
            run = self._runs.run(plan, idle.left, idle.trained)
            if run.error is not None:
                idle.count(run.steps)
                return run, False
            idle.count(run.steps - 1)
            return run, not idle.passes(run.raw)

    def _run_plan(self, plan: Plan, fetches: Any) -> list[Any]:
        """Run a plan, and return raw values with the global step from before it.

        If several threads run steps, the values are as the run has read them: what is
        read in another call may be older or newer.
        """
        global_step = self._calling_thread.global_step
        places = plan.places_of(global_step.early) if plan.is_on_caller else ()
        if not places or self._is_shared:
            return plan.run()
        is_step = self._is_step(fetches)
        before = self._expected if is_step else global_step.trained()
        raw = plan.run()
        if self._is_shared:  # another thread has begun meanwhile
            return raw
        if is_step:
            # Each read of the variable is a call of the session.
            if any(raw[place] != before for place in places):
                before = global_step.trained() - 1
            self._expected = before + 1
        for place in places:
            raw[place] = type(raw[place])(before)
        return raw

    def _is_step(self, fetches: Any) -> bool:
        """Return whether `fetches` add 1 to the global step, and no other op does."""
        key = key_of(fetches)
        if key not in self._are_steps:
            if len(self._are_steps) == MAX_PLANS:
                return False
            # Keep the fetches, because the key relies on their identity.
            self._are_steps[key] = self._adds_one(fetches), fetches
        return self._are_steps[key][0]

    def _adds_one(self, fetches: Any) -> bool:
        graph = self._sess.graph
        try:
            asked = sessions.FetchHandler(graph, fetches, {})
        except (TypeError, ValueError):  # the call itself raises it
            return False
        roots = [*(tensor.op for tensor in asked.fetches()), *asked.targets()]
        step = Subgraph(graph, roots)
        variable = self._calling_thread.global_step.variable
        is_step = adds_one(step, variable)
        if not (is_step or self._length.is_single or self._length.is_auto):
            self._rule_out_if_it_trains(step, variable)
        return is_step

    def _rule_out_if_it_trains(self, step: Subgraph, variable: Any) -> None:
        """Run steps singly, and say why, if a call trains without being a step."""
        if graph_ops.any_trains(step.graph, step.ops.values()):
            try:
                while_loop.check_step(step, variable)
            except CannotFuse as reason:
                self._length.rule_out(reason)

    def _call_after_run(
        self,
        context: tf.compat.v1.train.SessionRunContext,
        outputs: Mapping[Any, Any],
        options: config_pb2.RunOptions,
        run_metadata: config_pb2.RunMetadata,
    ) -> None:
        """Call the hooks after a step, and record whether one requests a stop."""
        for hook in self._hooks:
            values = tf_hooks.SessionRunValues(outputs.get(hook), options, run_metadata)
            hook.after_run(context, values)
        self._should_stop = self._should_stop or context.stop_requested


@contextlib.contextmanager
def _naming_lost_sessions() -> Iterator[None]:
    """Turn a CancelledError into an AbortedError if a task has lost the session.

    The loss makes the other tasks stop too, and it is chance which of the two errors
    comes first. So it is with a step that a server refuses. Only an AbortedError makes
    TensorFlow create a new session, which is the remedy.
    """
    try:
        yield
    except tf.errors.CancelledError as error:
        if not any(each in error.message for each in _SESSION_LOST):
            raise
        raise tf.errors.AbortedError(error.node_def, error.op, error.message) from error
