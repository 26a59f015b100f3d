"""The session that runs several steps at once, up to the next one a hook must see."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.fusion import while_loop
from estimator_runtime.loop.fusion.extras import Extras
from estimator_runtime.loop.fusion.session_config import check_config, may_split
from estimator_runtime.loop.fusion.steps import Steps
from estimator_runtime.loop.graph import ops as graph_ops
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph, subgraphs
from estimator_runtime.loop.hooks import schedule as hook_schedule
from estimator_runtime.loop.packing.requests import PackingLog
from estimator_runtime.loop.plan import MAX_PLANS, CannotPlan, key_of, structure
from estimator_runtime.loop.planned import CALLER, PlannedSession
from estimator_runtime.loop.run_length import RunLength, RunLog
from estimator_runtime.loop.step_kind import StepKind
from estimator_runtime.tf_internals import hooks as tf_hooks
from estimator_runtime.tf_internals import sessions

_logger = logging.getLogger(__name__)


class FusedSession(PlannedSession):
    """A planned session that runs up to `steps_per_run` steps in one call.

    A run ends at the next step that some hook must see (see `loop.hooks.schedule`), so
    hooks act at the same steps as with single steps. Variables, losses and random
    streams are bit-identical to those of single steps. A stop request takes effect at
    the end of a run.

    A step that cannot be fused is run singly, and the log says why. Every step is run
    singly once the caller has asked for anything else, such as another train op, or
    another thread has called the session.

    A run that ends early, because the data ends or a loss becomes NaN, returns the
    values of its last complete step, which each step keeps in variables.

    Args:
        sess: The session that runs the steps.
        hooks: Hooks of the session.
        run_length: The most steps in one call. This session shares it with those that
            replace it.
        packing_log: Logs which transfers between tasks are packed; None packs none.
    """

    def __init__(
        self,
        sess: tf.compat.v1.Session,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        run_length: RunLength,
        packing_log: PackingLog | None = None,
    ) -> None:
        super().__init__(sess, hooks, packing_log)
        self._run_length = run_length
        self._log = RunLog(hooks, run_length)
        self._step_key: object = None  # of the fetches that make up a step
        self._steps: Steps | None = None  # None if the step cannot be fused
        self._has_run = False  # whether there has been a run of steps
        # Requests before the first step, and beside the steps, by key.
        self._others: dict[Hashable, object] = {}
        # Names of the ops whose random numbers the loop draws from generators of its
        # own; empty once the log has said that another call draws them too.
        self._random_ops: set[str] = set()
        self._building = threading.RLock()
        # A run of steps holds this lock. A step of another thread waits for the end of
        # the run: together they would go past the step at which a hook must act.
        self._running = threading.RLock()

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: config_pb2.RunOptions | None = None,
        run_metadata: config_pb2.RunMetadata | None = None,
    ) -> Any:
        """Run up to `run_length` steps with the hooks; return the last one's values."""
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        self._note_thread()
        is_plain = not feed_dict and options is None and run_metadata is None
        key = key_of(fetches) if is_plain else None
        if self._step_key is None:
            with self._building:
                if self._step_key is None and self._trains(fetches, key):
                    self._steps = self._build(fetches, key)
                    self._step_key = key or object()
        steps = self._steps
        if steps is None or sessions.is_closed(self._sess):
            return super().run(fetches, feed_dict, options, run_metadata)
        if key == self._step_key and self._end_of_data is not None:
            error, self._end_of_data = self._end_of_data, None
            raise error
        if key == self._step_key and not self._is_shared:
            with self._running:
                return self._run_steps(steps, fetches)
        self._run_beside(fetches)
        return super().run(fetches, feed_dict, options, run_metadata)

    def _run_beside(self, fetches: object) -> None:
        """Prepare a call that is not a run of steps, though steps are fused."""
        if not self._is_shared:
            self._run_length.run_singly("takes turns with other calls of the session")
        else:
            self._run_length.run_singly("is run by several threads")
            if self._is_step(fetches):  # a run may itself wait for any other call
                with self._running:
                    pass
        self.forget_end_of_data()
        if drawn := self._drawn_by_both(fetches):
            self._random_ops = set()
            _logger.warning(
                "steps_per_run=%s: random numbers, and so losses, are not those of "
                "steps_per_run=1, because %r is run by different calls of the session",
                self._run_length,
                drawn,
            )

    def _trains(self, fetches: object, key: object) -> bool:
        """Return whether a call trains, and record each call that comes before.

        A call that only reads, such as the global step, tells nothing about the steps.
        """
        if key in self._others:
            return False
        graph = self._sess.graph
        operations = ops_of(graph, fetches).values()
        if len(self._others) == MAX_PLANS or graph_ops.any_trains(graph, operations):
            return True
        self._others[key or object()] = fetches  # the key relies on their identity
        return False

    def _drawn_by_both(self, fetches: object) -> str | None:
        """Return the name of a random op that is run by the loop and for `fetches`.

        The program's generators do not advance while the loop runs, so a call that
        draws from them gets the numbers that the first step has had.
        """
        key = key_of(fetches)
        if not self._random_ops or key in self._others:
            return None
        if len(self._others) < MAX_PLANS:
            self._others[key] = fetches
        both = ops_of(self._sess.graph, fetches).keys() & self._random_ops
        return min(both, default=None)

    def _build(self, fetches: object, key: object) -> Steps | None:
        """Build the loop for the step that the first call asks for.

        Returns:
            The fused steps; None if the step cannot be fused, which the log explains.
        """
        if self._run_length.is_single:
            return None
        try:
            if self._is_shared:
                raise CannotFuse("is run by several threads")
            if key is None:
                raise CannotFuse("is fed, or has run options, by the caller")
            if self._planner.obstacle:
                raise CannotFuse(self._planner.obstacle)
            check_hooks(self._sess.graph, self._hooks)
            check_config(self._sess)
            structure(fetches)
            steps = self._fuse(fetches)
        except (CannotFuse, CannotPlan) as reason:
            self._run_length.run_singly(reason)
            return None
        self._idle.forbid()  # runs of several steps replace idle hooks
        return steps

    def _fuse(self, fetches: object) -> Steps:
        """Add the loop of the step to the graph.

        Raises:
            CannotFuse: If the step, or what hooks ask for, cannot be in a loop.
        """
        targets, tensors = subgraphs(fetches)
        graph = self._sess.graph
        # A hook may watch a tensor that the caller does not fetch, or give its name.
        watched = hook_schedule.watched_losses(self._hooks)
        losses = sessions.FetchHandler(graph, watched, {}).fetches()
        step = Subgraph(graph, [*targets, *(each.op for each in (*tensors, *losses))])
        global_step = self._calling_thread.global_step
        asked = sessions.FetchHandler(graph, hook_schedule.fetches(self._hooks), {})
        extras = Extras(self._sess, step, asked.fetches(), asked.targets())
        inside = [t for t in asked.fetches() if t.op.name in step.ops]
        request = while_loop.LoopRequest(
            targets=targets,
            tensors=tensors,
            extras=[*inside, *extras.from_step.values()],
            global_step=global_step.variable,
            losses=losses,
            may_split=may_split(self._sess),
        )
        fused = while_loop.fuse(step, request)
        drawn = set(graph_ops.with_own_randomness(graph, step.ops.values()))
        for earlier in self._others.values():
            for name in sorted(drawn & ops_of(graph, earlier).keys()):
                raise CannotFuse(
                    f"draws random numbers, {name!r}, as an earlier call did"
                )
        self._random_ops = drawn
        flush = self._calling_thread.flush_for(fetches)
        return Steps(self._sess, step, fused, global_step, losses, flush)

    def _run_steps(self, steps: Steps, fetches: Any) -> Any:
        """Run steps up to the next one that a hook must see.

        Returns:
            The caller's values of the last step.

        Raises:
            ConfigError: If a hook feeds something, or asks for a value that the fused
                steps do not have.
        """
        self.step_kind = StepKind.FUSED
        # Read at each run: hooks and the program may have trained steps in between.
        due = hook_schedule.until_each_due(self._hooks, steps.trained())
        # A program whose calls take turns shows it in the second call, so the first one
        # runs a single step.
        is_single = self._run_length.is_single or not self._has_run
        self._has_run = True
        next_due = min((each for each in due if each is not None), default=None)
        count = 1 if is_single else self._run_length.up_to(next_due)
        context = tf_hooks.SessionRunContext(
            tf_hooks.SessionRunArgs(fetches), self._sess
        )
        wanted = {CALLER: fetches}
        options, run_metadata = config_pb2.RunOptions(), config_pb2.RunMetadata()
        hook_schedule.skip(self._hooks, count - 1)
        try:
            feeds = self._call_hook_before_run(context, wanted, None, options)
            if feeds:
                raise ConfigError(
                    "a hook that does not see every step feeds "
                    f"{next(iter(feeds))!r}; take away its `steps_until_due`"
                )
        except BaseException:
            hook_schedule.skip(self._hooks, 1 - count)  # no step has run
            raise
        began = time.perf_counter()
        try:
            completed, outputs = steps.run(wanted, count, options, run_metadata)
        except BaseException as error:
            # The global step is no proof: a step may increment it, and then fail.
            completed = min(steps.completed(), count - 1)
            hook_schedule.skip(self._hooks, completed - (count - 1))
            if not completed or not isinstance(error, tf.errors.OutOfRangeError):
                raise
            # The data ended inside the run. The steps before that are trained, and no
            # hook had to see any of them. The next call raises the error.
            self._end_of_data = error
            return steps.kept({CALLER: fetches})[CALLER]
        self._run_length.took(time.perf_counter() - began, completed)
        lacking: list[Any] = []
        if completed < count:
            # A loss has become NaN, at an earlier step than hooks have prepared for.
            hook_schedule.skip(self._hooks, completed - count)
            wanted = {CALLER: fetches}
            options, run_metadata = config_pb2.RunOptions(), config_pb2.RunMetadata()
            self._call_hook_before_run(context, wanted, None, options)
            outputs = steps.kept(wanted)
            lacking = [hook for hook in wanted if hook not in outputs]
        if not is_single:
            self._log.end(completed, due)
        self._call_after_run(context, outputs, options, run_metadata, lacking)
        return outputs[CALLER]


def check_hooks(graph: tf.Graph, hooks: Sequence[Any]) -> None:
    """Raise CannotFuse if there is a hook beside which steps have to run singly.

    Such a hook sees every step, is in the list twice, so that it counts each step
    twice, or draws random numbers when the session ends.
    """
    every = hook_schedule.every_step_hooks(hooks)
    if every:
        raise CannotFuse(f"must be seen by {', '.join(every)}")
    for i, hook in enumerate(hooks):
        name = type(hook).__name__
        if any(hook is other for other in hooks[:i]):
            raise CannotFuse(f"is seen twice by one {name}")
        for fetches in tf_hooks.fetches_at_end(hook):
            operations = ops_of(graph, fetches).values()
            if drawn := graph_ops.with_own_randomness(graph, operations):
                raise CannotFuse(
                    f"is run beside a {name} that draws random numbers, {drawn[0]!r}, "
                    "at the end"
                )


def ops_of(graph: tf.Graph, fetches: object) -> dict[str, tf.Operation]:
    """Return the ops that a call of the session runs, by name."""
    asked = sessions.FetchHandler(graph, fetches, {})
    return Subgraph(graph, [*(t.op for t in asked.fetches()), *asked.targets()]).ops
