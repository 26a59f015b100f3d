"""The session that calls the hooks, by plans instead of a fresh look at every step."""

import time

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import (
    basic_session_run_hooks,
    monitored_session,
    session_run_hook,
    training_util,
)

from estimator_runtime.loop import kernels
from estimator_runtime.loop.flushing import DenormalFlush
from estimator_runtime.loop.part import CannotFuse, Part, adds_one, parts
from estimator_runtime.loop.plan import Planner
from estimator_runtime.loop.threads import ThreadChoice

CALLER = "caller"
# What a CheckpointSaverHook is made with, so that it never relies on the number.
_UNKNOWN_STEPS_PER_RUN = 1_000_000


class PlannedSession(monitored_session._HookedSession):
    """TensorFlow's hooked session, with the fetches of a step compiled once.

    Every hook is called at every step, in the same order, with the same arguments
    and results. A step with feeds, run options or run metadata, from the caller or
    from a hook, goes through `Session.run`, as does every step of a session that
    cannot have plans.
    """

    def __init__(self, sess, hooks, clock=time.perf_counter):
        super().__init__(sess, hooks)
        self._should_stop = False
        self._flush = DenormalFlush.of_this_machine()
        self._planner = Planner(sess, self._flush)
        self._threads = ThreadChoice(clock)
        if self._flush is None or _chooses_threads(sess) or self._needs_pool():
            self._threads.is_caller = False
        self._savers = [hook for hook in hooks if _reads_every_step(hook)]

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Run one step with the hooks; see TensorFlow's `MonitoredSession.run`."""
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        context = session_run_hook.SessionRunContext(
            session_run_hook.SessionRunArgs(fetches, feed_dict), self._sess
        )
        if self._savers:
            self._spare_reads(fetches)
        wanted = {CALLER: fetches}
        is_plain = options is None and run_metadata is None
        options = options or config_pb2.RunOptions()
        run_metadata = run_metadata or config_pb2.RunMetadata()
        feeds = self._call_hook_before_run(context, wanted, feed_dict, options)
        plan = None
        if is_plain and not feeds and not options.ByteSize():
            plan = self._planner.plan(wanted)
        if plan is None:
            outputs = self._sess.run(
                fetches=wanted,
                feed_dict=feeds,
                options=options,
                run_metadata=run_metadata,
            )
        else:
            outputs = plan.results(self._threads.run(plan.on_pool, plan.on_caller))
        self._call_after_run(context, outputs, options, run_metadata)
        return outputs[CALLER]

    def _needs_pool(self):
        return not self._planner.obstacle and kernels.need_pool(self._sess.graph)

    def _spare_reads(self, fetches):
        """Spare checkpoint hooks a read of the global step at every step.

        They fetch its value from before the step, and because they cannot know how
        far a step takes it, they read it again after each one. Where a step adds 1,
        and nothing else in this process changes it, they can tell.
        """
        savers, self._savers = self._savers, []
        graph = self._sess.graph
        try:
            targets, tensors = parts(fetches)
        except CannotFuse:
            return
        step = Part(graph, [*targets, *(tensor.op for tensor in tensors)])
        global_step = training_util.get_global_step(graph)
        if not self._planner.obstacle and adds_one(step, global_step):
            for hook in savers:
                hook._set_steps_per_run(1)

    def _call_after_run(self, context, outputs, options, run_metadata):
        for hook in self._hooks:
            values = session_run_hook.SessionRunValues(
                outputs.get(hook), options, run_metadata
            )
            hook.after_run(context, values)
        self._should_stop = self._should_stop or context.stop_requested


def _reads_every_step(hook):
    saver = basic_session_run_hooks.CheckpointSaverHook
    return (
        isinstance(hook, saver)
        and type(hook).after_run is saver.after_run
        and hook._steps_per_run == _UNKNOWN_STEPS_PER_RUN
    )


def _chooses_threads(session):
    """Tell whether the user's ConfigProto says which threads run a step."""
    config = getattr(session, "_config", None)
    return config is not None and bool(
        config.inter_op_parallelism_threads
        or config.session_inter_op_thread_pool
        or config.use_per_session_threads
    )
