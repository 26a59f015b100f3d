"""The session that calls the hooks, by plans instead of a fresh look at every step."""

import contextlib
import functools
import sys
import time
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import (
    monitored_session,
    session_run_hook,
)

from estimator_runtime import preemption
from estimator_runtime.loop import kernels
from estimator_runtime.loop.closing import closable, told
from estimator_runtime.loop.flushing import DenormalFlush
from estimator_runtime.loop.global_step import GlobalStep, adds_one
from estimator_runtime.loop.lull import Lull
from estimator_runtime.loop.part import CannotFuse, Part, parts
from estimator_runtime.loop.plan import (
    MAX_PLANS,
    CannotPlan,
    Planner,
    are_equal,
    structure,
)
from estimator_runtime.loop.threads import ThreadChoice

CALLER = "caller"
_SESSION_LOST = "Session handle is not found"  # says the server that has lost it


class HookedSession(monitored_session._HookedSession):
    """TensorFlow's hooked session, but for what it does when a task or session is lost.

    A session that another task has lost is told from one that was cancelled, and a
    close does not wait for ever.
    """

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Run one step with the hooks; see TensorFlow's `MonitoredSession.run`."""
        with _naming_lost_sessions():
            return super().run(fetches, feed_dict, options, run_metadata)

    def close(self):
        """Close the session, when the hooks have counted all steps."""
        self.rest()
        # TensorFlow closes a session that it has lost while it handles that error.
        is_lost = isinstance(sys.exc_info()[1], monitored_session._PREEMPTION_ERRORS)
        is_stop = preemption.is_requested()
        if is_lost or is_stop:
            session = self._sess  # type: ignore[has-type]
            self._sess = session and closable(session, is_stop and not is_lost)
        # One that comes back in time anyway says for itself what it has waited for.
        with contextlib.nullcontext() if is_lost else told():
            super().close()

    def rest(self) -> None:
        """Leave the hooks as they would be, had they seen every step."""


class PlannedSession(HookedSession):
    """TensorFlow's hooked session, with the fetches of a step compiled once.

    Every hook is called at every step, in the same order, with the same arguments
    and results; but for steps at which none would do anything (see `lull`). A step
    with feeds, run options or run metadata, from the caller or from a hook, goes
    through `Session.run`, as does every step of a session that cannot have plans.
    """

    def __init__(self, sess, hooks, clock=time.perf_counter):
        super().__init__(sess, hooks)
        self._should_stop = False
        self._flush = DenormalFlush.of_this_machine()
        self._planner = Planner(sess, self._flush)
        self._threads = ThreadChoice(clock)
        if self._flush is None or _chooses_threads(sess) or self._needs_pool():
            self._threads.is_caller = False
        self._are_steps: dict = {}  # key of the caller's fetches to `_is_step`
        self._lull = Lull(hooks)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Run one step with the hooks; see TensorFlow's `MonitoredSession.run`."""
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        is_plain = not feed_dict and options is None and run_metadata is None
        unseen = self._lull.plan if is_plain else None
        # A session with a plan is TensorFlow's own.
        if unseen and not self._sess._closed and self._lull.covers(fetches):
            return self._run_unseen(unseen, fetches)
        self._lull.interrupt()
        context = session_run_hook.SessionRunContext(
            session_run_hook.SessionRunArgs(fetches, feed_dict), self._sess
        )
        wanted = {CALLER: fetches}
        options = options or config_pb2.RunOptions()
        run_metadata = run_metadata or config_pb2.RunMetadata()
        feeds = self._call_hook_before_run(context, wanted, feed_dict, options)
        plan = None
        if is_plain and not feeds and not options.ByteSize():
            plan = self._planner.plan(wanted)
        if plan is None:
            with _naming_lost_sessions():
                outputs = self._sess.run(
                    fetches=wanted,
                    feed_dict=feeds,
                    options=options,
                    run_metadata=run_metadata,
                )
        else:
            raw = self._threads.run(plan.on_pool, plan.on_caller)
            outputs = plan.results(raw)
        self._call_after_run(context, outputs, options, run_metadata)
        if self._lull.is_possible and plan is not None and self._is_step(fetches):
            self._lull.begin(plan, self._global_step, fetches, raw)
        return outputs[CALLER]

    def rest(self):
        """Leave the hooks as they would be, had they seen every step."""
        self._lull.end()

    def _run_unseen(self, plan, fetches):
        """Run a step that no hook has to see, unless it shows something to them."""
        lull = self._lull
        try:
            raw = self._threads.run(plan.on_pool, plan.on_caller)
        except BaseException:
            lull.end()
            raise
        if lull.passes(raw):
            return lull.results(raw)
        lull.end()
        context = session_run_hook.SessionRunContext(
            session_run_hook.SessionRunArgs(fetches), self._sess
        )
        options, run_metadata = config_pb2.RunOptions(), config_pb2.RunMetadata()
        # Until they are due, they ask for the same at every step. If another thread's
        # call has left one due, the next step is the one that it sees.
        again = {CALLER: fetches}
        self._call_hook_before_run(context, again, None, options)
        late = [h for h in self._hooks if differ(again, plan.wanted, h)]
        outputs = plan.results(raw)
        self._call_after_run(context, outputs, options, run_metadata, late)
        return outputs[CALLER]

    @functools.cached_property
    def _global_step(self):
        return GlobalStep(self._sess, self._flush)

    def _needs_pool(self):
        return not self._planner.obstacle and kernels.need_pool(self._sess.graph)

    def _is_step(self, fetches):
        """Tell whether `fetches` add 1 to the global step, and nothing else does."""
        try:
            key = structure(fetches)
        except CannotPlan:
            return False
        if key not in self._are_steps:
            if len(self._are_steps) == MAX_PLANS:
                return False
            try:
                targets, tensors = parts(fetches)
            except CannotFuse:
                targets, tensors = [], []
            step = Part(self._sess.graph, [*targets, *(t.op for t in tensors)])
            # With the fetches, on whose identity the key relies.
            self._are_steps[key] = adds_one(step, self._global_step.variable), fetches
        return self._are_steps[key][0]

    def _call_after_run(self, context, outputs, options, run_metadata, unless=()):
        for hook in self._hooks:
            if hook in unless:
                continue
            values = session_run_hook.SessionRunValues(
                outputs.get(hook), options, run_metadata
            )
            hook.after_run(context, values)
        self._should_stop = self._should_stop or context.stop_requested


@contextlib.contextmanager
def _naming_lost_sessions() -> Iterator[None]:
    """Raise an AbortedError where a session was cancelled because a task has lost it.

    The other tasks stop for that, and which of the two errors comes first is chance.
    Only the loss, which a new session mends, is told to those who make one.

    Raises:
        tf.errors.AbortedError: In place of a CancelledError that says so.
    """
    try:
        yield
    except tf.errors.CancelledError as error:
        if _SESSION_LOST not in error.message:
            raise
        raise tf.errors.AbortedError(error.node_def, error.op, error.message) from error


def differ(wanted, others, consumer):
    """Tell whether a consumer asks for one thing here and another there."""
    return not are_equal(wanted.get(consumer, ()), others.get(consumer, ()))


def _chooses_threads(session):
    """Tell whether the user's ConfigProto says which threads run a step."""
    config = getattr(session, "_config", None)
    return config is not None and bool(
        config.inter_op_parallelism_threads
        or config.session_inter_op_thread_pool
        or config.use_per_session_threads
    )
