"""The session that runs several steps at once, up to the next one a hook must see."""

import logging
import time

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import session_run_hook

from estimator_runtime.loop import body, cadence
from estimator_runtime.loop.hooked import CALLER, PlannedSession
from estimator_runtime.loop.part import CannotFuse, parts
from estimator_runtime.loop.plan import CannotPlan, Plan, Planner, structure
from estimator_runtime.loop.substitute import FusedSteps

_logger = logging.getLogger(__name__)
_PROGRESS = "progress"


class FusedSession(PlannedSession):
    """A planned session that runs up to `steps_per_run` steps in one call.

    A run ends at the next step that some hook must see (see `cadence`), so hooks act
    at the very steps at which they act with single steps; variables, losses and
    random streams are equal to the bit. A stop request takes effect at the end of a
    run. A step that cannot be fused is run singly, and the log says why.

    Args:
        sess: `tf.compat.v1.Session` that runs the steps.
        hooks: Hooks of the session.
        run_length: `RunLength`, the most steps in one call.
        clock: Gives seconds.
    """

    def __init__(self, sess, hooks, run_length, clock=time.perf_counter):
        super().__init__(sess, hooks, clock)
        self._run_length = run_length
        self._clock = clock
        self._step_key: object = (
            None  # of the fetches that make a step; None before the first
        )
        self._steps: FusedSteps | None = (
            None  # the FusedSteps; None if the step cannot be fused
        )

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Run up to `run_length` steps with the hooks; give the last one's values."""
        key = _key(fetches)
        if self._step_key is None:
            self._step_key = key
            self._build(fetches, is_plain=not (feed_dict or options or run_metadata))
        is_step = (
            self._steps is not None
            and not feed_dict
            and options is None
            and run_metadata is None
            and key == self._step_key
        )
        if not is_step:
            self._global_step = None
            return super().run(fetches, feed_dict, options, run_metadata)
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        return self._run_steps(fetches)

    def _build(self, fetches, is_plain):
        """Build the loop of the step that the first call asks for, if it can be."""
        try:
            if not is_plain:
                raise CannotFuse("is fed, or has run options, by the caller")
            if self._planner.obstacle:
                raise CannotFuse(self._planner.obstacle)
            every = cadence.every_step_hooks(self._hooks)
            if every:
                raise CannotFuse(f"must be seen by {', '.join(every)}")
            structure(fetches)
            self._steps = self._fuse(fetches)
        except (CannotFuse, CannotPlan) as reason:
            _logger.warning(
                "steps_per_run=%s: steps are run one by one, because the step %s",
                self._run_length,
                reason,
            )

    def _fuse(self, fetches):
        targets, tensors = parts(fetches)
        graph = self._sess.graph
        self._global_step_variable = tf.compat.v1.train.get_global_step(graph)
        self._global_step = None
        watched = [getattr(hook, "_loss_tensor", None) for hook in self._hooks]
        losses = [t for t in tensors if any(t is loss for loss in watched)]
        self._loss = losses[0] if losses else None
        extras = cadence.fetches(self._hooks)
        steps = body.fuse(
            graph, targets, tensors, extras, self._global_step_variable, self._loss
        )
        self._step_planner = Planner(self._sess, self._flush, steps)
        return steps

    def _run_steps(self, fetches):
        if self._global_step is None:
            self._global_step = self._read_global_step()
        due = cadence.until_due(self._hooks, self._global_step, self._loss)
        count = self._run_length.up_to(due)
        cadence.skip(self._hooks, count - 1)
        context = session_run_hook.SessionRunContext(
            session_run_hook.SessionRunArgs(fetches), self._sess
        )
        wanted = {CALLER: fetches, _PROGRESS: self._global_step_variable}
        options, run_metadata = config_pb2.RunOptions(), config_pb2.RunMetadata()
        feeds = self._call_hook_before_run(context, wanted, None, options)
        plan = None
        if not feeds and not options.ByteSize():
            plan = self._step_planner.plan(wanted)
        if plan is None:
            outputs = self._end_singly(count, wanted, feeds, options, run_metadata)
        else:
            try:
                outputs = plan.results(self._timed(plan, count))
            except tf.errors.OutOfRangeError:
                # The data ended inside the run. The steps before that have been
                # trained, and none of them was one that a hook had to see.
                if self._read_global_step() == self._global_step:
                    raise
                self._global_step = None
                return self._last_complete(fetches, self._steps)
        self._global_step = int(outputs.pop(_PROGRESS)) + 1
        self._call_after_run(context, outputs, options, run_metadata)
        return outputs[CALLER]

    def _timed(self, plan, count):
        start = self._clock()
        values = self._threads.run(
            plan.on_pool, plan.on_caller, np.int32(count), steps=count
        )
        self._run_length.took(self._clock() - start, count)
        return values

    def _end_singly(self, count, wanted, feeds, options, run_metadata):
        """Run all but one step fused; singly the one that a hook feeds or traces."""
        if count > 1:
            self._timed(self._step_planner.plan({}), count - 1)
        return self._sess.run(
            wanted, feed_dict=feeds, options=options, run_metadata=run_metadata
        )

    def _last_complete(self, fetches, steps):
        """Give the caller's values of the last step that was trained."""
        plan = Plan(self._sess, {CALLER: fetches}, None, steps.kept)
        return plan.results(plan.on_pool())[CALLER]

    def _read_global_step(self):
        return int(self._sess.run(self._global_step_variable))


def _key(fetches):
    try:
        return structure(fetches)
    except CannotPlan:
        return object()  # equal to no other
