"""The session that runs several steps at once, up to the next one a hook must see."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop import hook_schedule
from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.fusion import while_loop
from estimator_runtime.loop.fusion.while_loop import FusedSteps
from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.graph import ops as graph_ops
from estimator_runtime.loop.graph import xla
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph, subgraphs
from estimator_runtime.loop.packing.requests import PackingLog
from estimator_runtime.loop.plan import (
    MAX_PLANS,
    CannotPlan,
    Plan,
    Substitute,
    key_of,
    structure,
)
from estimator_runtime.loop.planned import CALLER, PlannedSession, differ
from estimator_runtime.loop.run_length import RunLength, RunLog
from estimator_runtime.tf_internals import internals

tf1 = tf.compat.v1

_DATA_STARTERS = ("MakeIterator", "MultiDeviceIteratorInit")
_RAN = "steps run"
_LOSSES = "losses"
_logger = logging.getLogger(__name__)


class FusedSession(PlannedSession):
    """A planned session that runs up to `steps_per_run` steps in one call.

    A run ends at the next step that some hook must see (see `hook_schedule`), so hooks
    act at the same steps as with single steps. Variables, losses and random streams
    are bit-identical to those of single steps. A stop request takes effect at the end
    of a run.

    A step that cannot be fused is run singly, and the log says why. Every step is run
    singly once the caller has asked for anything else, such as another train op.

    Args:
        sess: The session that runs the steps.
        hooks: Hooks of the session.
        run_length: The most steps in one call. This session shares it with those that
            replace it.
        clock: Returns the time in seconds.
        packing_log: Logs which transfers between tasks are packed; None packs none.
    """

    def __init__(
        self,
        sess: tf.compat.v1.Session,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        run_length: RunLength,
        clock: Callable[[], float] = time.perf_counter,
        packing_log: PackingLog | None = None,
    ) -> None:
        super().__init__(sess, hooks, packing_log)
        self._run_length = run_length
        self._log = RunLog(hooks, run_length)
        self._clock = clock
        self._step_key: object = None  # of the fetches that make up a step
        # Requests before the first step, by key.
        self._before: dict[object, object] = {}
        self._steps: Steps | None = None  # None if the step cannot be fused
        self._randomness: Any = None  # the `Randomness` of the steps
        self._end_of_data: Exception | None = None
        self._thread = threading.get_ident()  # of the first call
        self._is_shared = False  # by threads
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
        is_plain = not feed_dict and options is None and run_metadata is None
        key = key_of(fetches) if is_plain else None
        with self._building:
            is_first = self._step_key is None and self._trains(fetches, key)
            if is_first:
                self._thread = threading.get_ident()
                self._step_key = key or object()
                self._steps = self._build(fetches, key)
                if self._steps is not None:
                    self._idle.forbid()  # runs of several steps replace idle hooks
        if self._steps is None or internals.is_closed(self._sess):
            return super().run(fetches, feed_dict, options, run_metadata)
        if threading.get_ident() != self._thread:
            self._share(fetches)
        if key != self._step_key:
            self._run_length.run_singly("takes turns with other calls of the session")
            self._randomness.record(fetches, key_of(fetches))
            values = super().run(fetches, feed_dict, options, run_metadata)
            if self._end_of_data is not None and self._starts_data(fetches):
                self.forget_end_of_data()
            return values
        if self._end_of_data is not None:
            error, self._end_of_data = self._end_of_data, None
            raise error
        with self._running:
            if not self._is_shared:
                # A program whose calls take turns shows it in the second call, so the
                # first one runs a single step.
                is_single = is_first or self._run_length.is_single
                return self._run_steps(self._steps, fetches, is_single)
        self._randomness.record(fetches, key_of(fetches))
        return super().run(fetches)

    def _share(self, fetches: object) -> None:
        """Record that several threads run steps.

        If `fetches` are a step, wait for the end of a run that is under way.
        """
        self._is_shared = True
        self._run_length.run_singly("is run by several threads")
        if self._is_step(fetches):  # a run of steps may itself wait for anything else
            with self._running:
                pass

    def forget_end_of_data(self) -> None:
        """Forget an end of data that no call has raised yet.

        If the data has really ended, the next step finds that out again.
        """
        self._end_of_data = None

    def _starts_data(self, fetches: object) -> bool:
        """Return whether a call initializes an iterator."""
        ops = ops_of(self._sess.graph, fetches).values()
        return any(op.type in _DATA_STARTERS for op in ops)

    def _trains(self, fetches: object, key: object) -> bool:
        """Return whether a call trains, and record each call that comes before.

        A call that only reads, such as the global step, tells nothing about the steps.
        """
        if key in self._before:
            return False
        ops = ops_of(self._sess.graph, fetches).values()
        if len(self._before) == MAX_PLANS or graph_ops.any_trains(
            self._sess.graph, ops
        ):
            return True
        self._before[key or object()] = fetches  # the key relies on their identity
        return False

    def _build(self, fetches: object, key: object) -> Steps | None:
        """Build the loop for the step that the first call asks for.

        Returns:
            The fused steps; None if the step cannot be fused, which the log explains.
        """
        if self._run_length.is_single:
            return None
        try:
            if key is None:
                raise CannotFuse("is fed, or has run options, by the caller")
            if self._planner.obstacle:
                raise CannotFuse(self._planner.obstacle)
            every = hook_schedule.every_step_hooks(self._hooks)
            if every:
                raise CannotFuse(f"must be seen by {', '.join(every)}")
            _check_distinct(self._hooks)
            _check_config(getattr(self._sess, "_config", None) or tf1.ConfigProto())
            structure(fetches)
            return self._fuse(fetches)
        except (CannotFuse, CannotPlan) as reason:
            self._run_length.run_singly(reason)
            return None

    def _fuse(self, fetches: object) -> Steps:
        """Add the loop of the step to the graph.

        Raises:
            CannotFuse: If the step, or what hooks ask for, cannot be in a loop.
        """
        targets, tensors = subgraphs(fetches)
        graph = self._sess.graph
        # A hook may watch a tensor that the caller does not fetch, or give its name.
        watched = hook_schedule.watched_losses(self._hooks)
        losses = internals.FetchHandler(graph, watched, {}).fetches()
        step = Subgraph(graph, [*targets, *(each.op for each in (*tensors, *losses))])
        global_step = self._calling_thread.global_step
        check_end(graph, self._hooks)
        asked = internals.FetchHandler(graph, hook_schedule.fetches(self._hooks), {})
        request = while_loop.LoopRequest(
            targets=targets,
            tensors=tensors,
            extras=[*asked.fetches(), *asked.targets()],
            global_step=global_step.variable,
            losses=losses,
            may_split=_may_split(self._sess),
        )
        fused = while_loop.fuse(step, request)
        self._randomness = Randomness(graph, step, self._run_length)
        drawn = map(self._randomness.drawn_by, self._before.values())
        for name in filter(None, drawn):
            raise CannotFuse(f"draws random numbers, {name!r}, as an earlier call did")
        return Steps(
            self._sess, fused, global_step, losses, self._calling_thread.flush_for
        )

    def _run_steps(self, steps: Steps, fetches: Any, is_single: bool) -> Any:
        """Run steps up to the next one that a hook must see; run one if `is_single`.

        Returns:
            The caller's values of the last step.

        Raises:
            ConfigError: If a hook feeds something, or asks for a value that the fused
                steps do not have.
        """
        # Read at each run: hooks and the program may have trained steps in between.
        start = steps.trained()
        due = hook_schedule.until_each_due(self._hooks, start, watches_nan=True)
        count = 1
        if not is_single:
            self._log.begin(due)
            next_due = min((each for each in due if each is not None), default=None)
            count = self._run_length.up_to(next_due)
        context = internals.SessionRunContext(
            internals.SessionRunArgs(fetches), self._sess
        )
        wanted = {CALLER: fetches, **steps.always}
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
        began = self._clock()
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
            return steps.kept(CALLER, fetches)
        self._run_length.took(self._clock() - began, completed)
        unless = []
        if completed < count:
            # A loss has become NaN, at an earlier step than hooks have prepared for.
            hook_schedule.skip(self._hooks, completed - count)
            again = {CALLER: fetches}
            self._call_hook_before_run(context, again, None, config_pb2.RunOptions())
            unless = [
                hook
                for hook in self._hooks
                if hook_schedule.schedule_of(hook) is None
                and (hook in steps.lacking or differ(wanted, again, hook))
            ]
        self._log.end(completed, due, is_single)
        self._call_after_run(context, outputs, options, run_metadata, unless)
        return outputs[CALLER]


def _check_distinct(hooks: Sequence[tf.compat.v1.train.SessionRunHook]) -> None:
    """Raise CannotFuse if a hook is listed twice: it counts each step twice."""
    seen: set[int] = set()
    for hook in hooks:
        if id(hook) in seen:
            raise CannotFuse(f"is seen twice by one {type(hook).__name__}")
        seen.add(id(hook))


def _may_split(session: tf.compat.v1.Session) -> bool:
    """Return whether the ops of a step run on CPUs only, and at their own precision."""
    config = getattr(session, "_config", None) or tf1.ConfigProto()
    devices = session.list_devices()
    return xla.mixed_precision(config) is None and all(
        each.device_type == "CPU" for each in devices
    )


def _check_config(config: config_pb2.ConfigProto) -> None:
    """Raise CannotFuse if a ConfigProto has settings that need one step per call."""
    reason = xla.reason(config)
    if reason is not None:
        raise CannotFuse(reason)
    if config.operation_timeout_in_ms:
        raise CannotFuse("has a time limit of its own (operation_timeout_in_ms)")
    # TensorFlow keeps random generators by the names of their ops. With this setting,
    # the names of ops in branches change from one request to the next.
    if config.graph_options.place_pruned_graph:
        raise CannotFuse("is placed anew for each request (place_pruned_graph)")


def check_end(
    graph: tf.Graph, hooks: Iterable[tf.compat.v1.train.SessionRunHook]
) -> None:
    """Raise CannotFuse if a hook draws random numbers when the session ends."""
    for hook, fetches in _at_end(hooks):
        drawn = graph_ops.with_own_randomness(graph, ops_of(graph, fetches).values())
        if drawn:
            raise CannotFuse(
                f"is run beside a {type(hook).__name__} that draws random numbers, "
                f"{drawn[0]!r}, at the end"
            )


class Randomness:
    """Logs, once, that another call draws the random numbers that the loop has drawn.

    The loop has ops of its own, and so random generators of its own (see `graph.ops`).
    The program's generators do not advance while the loop runs. Another call that draws
    from them gets the numbers that the first step has had.

    Args:
        graph: The graph of the session.
        step: The part of the graph that the loop runs.
        run_length: The length of runs, which the log names.
    """

    def __init__(self, graph: tf.Graph, step: Subgraph, run_length: RunLength) -> None:
        self._graph = graph
        self._names = graph_ops.with_own_randomness(graph, step.ops.values())
        self._run_length = run_length
        self._known: dict[Hashable, object] = {}  # other requests, by key

    def drawn_by(self, fetches: object) -> str | None:
        """Return the name of an op that draws both in a step and for `fetches`."""
        if not self._names:
            return None
        both = ops_of(self._graph, fetches).keys() & set(self._names)
        return min(both, default=None)

    def record(self, fetches: object, key: Hashable) -> None:
        """Record another call of the session, and log it if it draws the same numbers.

        Args:
            fetches: What the call asks for.
            key: Equal for equal requests (see `plan.structure`).
        """
        if not self._names or key in self._known or len(self._known) == MAX_PLANS:
            return
        self._known[key] = fetches  # the key relies on their identity
        both = self.drawn_by(fetches)
        if both is not None:
            self._names = []
            _logger.warning(
                "steps_per_run=%s: random numbers, and so losses, are not those of "
                "steps_per_run=1, because %r is run by different calls of the session",
                self._run_length,
                both,
            )


def _at_end(
    hooks: Iterable[tf.compat.v1.train.SessionRunHook],
) -> Iterator[tuple[tf.compat.v1.train.SessionRunHook, Any]]:
    """Yield the hooks that run the session when it ends, with what they fetch then."""
    for hook in hooks:
        for fetches in internals.fetches_at_end(hook):
            yield hook, fetches


def ops_of(graph: tf.Graph, fetches: object) -> dict[str, tf.Operation]:
    """Return the ops that a call of the session runs, by name."""
    asked = internals.FetchHandler(graph, fetches, {})
    return Subgraph(graph, [*(t.op for t in asked.fetches()), *asked.targets()]).ops


@dataclasses.dataclass(kw_only=True)
class _RunRequest:
    """The plans that serve one request."""

    plan: Plan  # for the whole run, or for its last step
    but_last: Plan | None = None  # for the steps before it; None until it is needed
    is_cut: bool = False  # whether the last step of a run is always run on its own


class Steps:
    """Runs the steps of a session through their fused body.

    Args:
        session: A `tf.compat.v1.Session` of this process.
        fused: The loop of steps in the session's graph.
        global_step: The global step of the session.
        losses: The tensors of the step whose NaN ends a run.
        flush_for: Takes the fetches of a request for a single step, and returns the
            `flush` of its plan.

    Attributes:
        always: What every run fetches beside what it is asked for: consumer to
            fetches.
        lacking: Consumers whose values the last run did not compute, because a NaN
            ended it before its last step.
        trained: Returns the number of steps trained so far.
    """

    def __init__(
        self,
        session: Any,
        fused: FusedSteps,
        global_step: GlobalStep,
        losses: Sequence[tf.Tensor],
        flush_for: Callable[[Any], DenormalFlush | None],
    ) -> None:
        self._session = session
        self._fused = fused
        self._flush_for = flush_for
        self._known: collections.OrderedDict[Hashable, _RunRequest]
        self._known = collections.OrderedDict()
        self._callables: weakref.WeakValueDictionary[bytes, Callable[..., Any]]
        self._callables = weakref.WeakValueDictionary()
        self.trained = global_step.trained
        self.always = {_RAN: fused.ran, _LOSSES: list(losses)}
        self.lacking: list[Any] = []
        self._total = self._total_before = 0
        session.run(fused.reset)

    def run(
        self,
        wanted: Mapping[Any, Any],
        count: int,
        options: Any,
        run_metadata: Any,
    ) -> tuple[int, dict[Any, Any]]:
        """Run `count` steps, or fewer if a loss becomes NaN.

        Args:
            wanted: Consumer to fetches, those of `always` included.
            count: The number of steps to run, 1 or more.
            options: `RunOptions` for the last step; may be empty.
            run_metadata: `RunMetadata` that receives what the last step reports.

        Returns:
            The number of steps run, and consumer to results of the last one.

        Raises:
            ConfigError: If a hook asks for a value that the fused steps do not have.
        """
        self._total_before = self._total
        self.lacking = []
        request = self._request(wanted)
        plan, but_last = request.plan, request.but_last
        is_traced = bool(options.ByteSize())
        is_cut = count > 1 and (request.is_cut or is_traced)
        ran = 0
        if is_cut:
            if but_last is None:
                but_last = self._plan(self._fused.but_last, wanted)
                request.but_last = but_last
            results = but_last.results(but_last.run(np.int32(count - 1)))
            ran = self._count(results)
            if any(np.isnan(each).any() for each in results[_LOSSES]):
                self.lacking = self._lacking(wanted)
                return ran, results
            count = 1
        if is_traced:
            values = plan.traced(self._session, [count], options, run_metadata)
        else:
            values = plan.run(np.int32(count))
        results = plan.results(values)
        return ran + self._count(results), results

    def completed(self) -> int:
        """Return the number of complete steps of a run that has failed."""
        self._total = int(self._session.run(self._fused.total))
        return self._total - self._total_before

    def kept(self, consumer: object, fetches: Any) -> Any:
        """Return a caller's values of the last complete step; run no step."""
        plan = self._plan(self._fused.kept, {consumer: fetches})
        return plan.results(plan.run())[consumer]

    def _lacking(self, wanted: Mapping[Any, Any]) -> list[Any]:
        """Return the consumers that ask for something that is not part of a step."""
        plans = {c: self._plan(self._fused.but_last, {c: f}) for c, f in wanted.items()}
        return [c for c, plan in plans.items() if plan.places_of(self._fused.extras)]

    def _count(self, results: Mapping[Any, Any]) -> int:
        """Return how many steps a run had, and add them to the total."""
        ran = int(results[_RAN])
        self._total += ran
        return ran

    def _request(self, wanted: Mapping[Any, Any]) -> _RunRequest:
        """Return the plans for `wanted`, from a cache of the last ones used."""
        key: Hashable
        try:
            key = tuple([(id(c), structure(f)) for c, f in wanted.items()])
            request = self._known.get(key) or self._make_request(wanted)
        except CannotPlan:
            request = self._make_request(wanted)
            # No later request finds this entry. The cache keeps its callables alive,
            # so that the next request that runs the same can share them.
            key = request.plan.run
        self._known[key] = request
        self._known.move_to_end(key)
        if len(self._known) > MAX_PLANS:
            self._known.popitem(last=False)
        return request

    def _make_request(self, wanted: Mapping[Any, Any]) -> _RunRequest:
        """Compile the plans for `wanted`."""
        with contextlib.suppress(CannotPlan):
            return _RunRequest(plan=self._plan(self._fused.steps, wanted))
        try:
            return _RunRequest(
                plan=self._plan(self._fused.last, wanted),
                but_last=self._plan(self._fused.but_last, wanted),
                is_cut=True,
            )
        except CannotPlan as error:
            raise ConfigError(
                f"a hook that does not see every step asks for {error}; list it in the "
                "hook's `fused_fetches`, or take away its `steps_until_due`"
            ) from error

    def _plan(self, substitute: Substitute, wanted: Mapping[Any, Any]) -> Plan:
        """Compile one plan, which shares callables with the others of the session."""
        step = {c: fetches for c, fetches in wanted.items() if c != _RAN}
        flush = self._flush_for(step)
        return Plan(self._session, wanted, flush, substitute, self._callables)
