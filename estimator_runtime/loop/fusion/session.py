"""The session that runs several steps at once, up to the next one a hook must see."""

import os
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as session_lib
from tensorflow.python.training import session_run_hook

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop import body, cadence, randomness, writers
from estimator_runtime.loop.hooked import CALLER, PlannedSession, differ
from estimator_runtime.loop.part import CannotFuse, Part, parts
from estimator_runtime.loop.plan import MAX_PLANS, CannotPlan, structure
from estimator_runtime.loop.run_length import Announcement, Shortening
from estimator_runtime.loop.steps import Steps

tf1 = tf.compat.v1

_DATA_STARTERS = ("MakeIterator", "MultiDeviceIteratorInit")


class FusedSession(PlannedSession):
    """A planned session that runs up to `steps_per_run` steps in one call.

    A run ends at the next step that some hook must see (see `cadence`), so hooks act
    at the very steps at which they act with single steps; variables, losses and
    random streams are equal to the bit. A stop request takes effect at the end of a
    run. A step that cannot be fused is run singly, and the log says why; so is every
    step once the caller has asked for anything else, such as another train op.

    Args:
        sess: `tf.compat.v1.Session` that runs the steps.
        hooks: Hooks of the session.
        run_length: `RunLength`, the most steps in one call, of this session and of
            those that are made in its place.
        clock: Gives seconds.
    """

    def __init__(self, sess, hooks, run_length, clock=time.perf_counter):
        super().__init__(sess, hooks, clock)
        self._run_length = run_length
        self._shortening = Shortening(hooks, run_length.asked_for)
        self._announcement = Announcement(hooks, run_length)
        self._clock = clock
        self._step_key: object = None  # of the fetches that make a step
        self._before: dict = {}  # requests before the first step, by key
        self._steps: Any = None  # None if the step cannot be fused
        self._randomness: Any = None  # that of the steps
        self._end_of_data: Exception | None = None
        self._thread = threading.get_ident()  # of the first call
        self._is_shared = False  # by threads
        self._building = threading.RLock()
        # Held by a run of steps. A thread's own step waits for its end: together they
        # would go past the step at which a hook must act.
        self._running = threading.RLock()

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Run up to `run_length` steps with the hooks; give the last one's values."""
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        is_plain = not feed_dict and options is None and run_metadata is None
        key = _key(fetches) if is_plain else None
        with self._building:
            is_first = self._step_key is None and self._trains(fetches, key)
            if is_first:
                self._thread = threading.get_ident()
                self._step_key = key or object()
                self._steps = self._build(fetches, key)
                if self._steps is not None:
                    self._lull.forbid()  # runs of steps take its place
        if self._steps is None or self._sess._closed:
            return super().run(fetches, feed_dict, options, run_metadata)
        if threading.get_ident() != self._thread:
            self._share(fetches)
        if key != self._step_key:
            self._run_length.run_singly("takes turns with other calls of the session")
            self._randomness.tell(fetches, _key(fetches))
            values = super().run(fetches, feed_dict, options, run_metadata)
            if self._end_of_data is not None and self._starts_data(fetches):
                self.forget_end_of_data()
            return values
        if self._end_of_data is not None:
            error, self._end_of_data = self._end_of_data, None
            raise error
        with self._running:
            if not self._is_shared:
                # Calls that take turns show in the second one, before several steps
                # are run.
                is_single = is_first or self._run_length.is_single
                return self._run_steps(self._steps, fetches, is_single)
        self._randomness.tell(fetches, _key(fetches))
        return super().run(fetches)

    def _share(self, fetches):
        """Take note that several threads run steps; wait for a run to end, for one."""
        self._is_shared = True
        self._run_length.run_singly("is run by several threads")
        if self._is_step(fetches):  # else a run of steps may wait for it
            with self._running:
                pass

    def forget_end_of_data(self):
        """Forget an end that no call was told of yet; a further step shows it again."""
        self._end_of_data = None

    def _starts_data(self, fetches):
        ops = randomness.ops_of(self._sess.graph, fetches).values()
        return any(op.type in _DATA_STARTERS for op in ops)

    def _trains(self, fetches: object, key: object) -> bool:
        """Return whether a call trains; what comes before the first that does is noted.

        A call that only looks, such as for the global step, says nothing of the steps.
        """
        if key in self._before:
            return False
        ops = randomness.ops_of(self._sess.graph, fetches).values()
        if len(self._before) == MAX_PLANS or writers.any_trains(self._sess.graph, ops):
            return True
        self._before[key or object()] = fetches  # on whose identity the key relies
        return False

    def _build(self, fetches, key):
        """Build the loop of the step that the first call asks for, if it can be."""
        if self._run_length.is_single:
            return None
        try:
            if key is None:
                raise CannotFuse("is fed, or has run options, by the caller")
            if self._planner.obstacle:
                raise CannotFuse(self._planner.obstacle)
            every = cadence.every_step_hooks(self._hooks)
            if every:
                raise CannotFuse(f"must be seen by {', '.join(every)}")
            _check_distinct(self._hooks)
            _check_config(getattr(self._sess, "_config", None) or tf1.ConfigProto())
            structure(fetches)
            return self._fuse(fetches)
        except (CannotFuse, CannotPlan) as reason:
            self._run_length.run_singly(reason)
            return None

    def _fuse(self, fetches):
        targets, tensors = parts(fetches)
        graph = self._sess.graph
        watched = [cadence.watched_loss(hook) for hook in self._hooks]
        losses = [t for t in tensors if any(t is loss for loss in watched)]
        loss = losses[0] if losses else None
        step = Part(graph, [*targets, *(tensor.op for tensor in tensors)])
        randomness.check_end(graph, self._hooks)
        asked = session_lib._FetchHandler(graph, cadence.fetches(self._hooks), {})
        extras = [*asked.fetches(), *asked.targets()]
        fused = body.fuse(
            graph, targets, tensors, extras, self._global_step.variable, loss
        )
        self._randomness = randomness.Randomness(graph, step, self._run_length)
        drawn = map(self._randomness.drawn_by, self._before.values())
        for name in filter(None, drawn):
            raise CannotFuse(f"draws random numbers, {name!r}, as an earlier call did")
        return Steps(self._sess, fused, self._global_step, loss, self._flush)

    def _run_steps(self, steps, fetches, is_single):
        # Asked each time: hooks and the program may have trained steps in between.
        start = steps.trained()
        due = cadence.until_each_due(self._hooks, start, steps.loss)
        count = 1 if is_single else self._up_to(due)
        context = session_run_hook.SessionRunContext(
            session_run_hook.SessionRunArgs(fetches), self._sess
        )
        wanted = {CALLER: fetches, **steps.always}
        options, run_metadata = config_pb2.RunOptions(), config_pb2.RunMetadata()
        cadence.skip(self._hooks, count - 1)
        try:
            feeds = self._call_hook_before_run(context, wanted, None, options)
            if feeds:
                raise ConfigError(
                    "a hook that does not see every step feeds "
                    f"{next(iter(feeds))!r}; take away its `steps_until_due`"
                )
        except BaseException:
            cadence.skip(self._hooks, 1 - count)  # none has been run
            raise
        began = self._clock()
        try:
            completed, outputs = steps.run(
                self._call, wanted, count, options, run_metadata
            )
        except BaseException as error:
            # The global step does not tell: a step may count itself, and then fail.
            completed = min(steps.completed(), count - 1)
            cadence.skip(self._hooks, completed - (count - 1))
            if not completed or not isinstance(error, tf.errors.OutOfRangeError):
                raise
            # The data ended inside the run. The steps before that have been trained,
            # and none of them was one that a hook had to see; the next call ends.
            self._end_of_data = error
            return steps.kept(CALLER, fetches)
        self._run_length.took(self._clock() - began, completed)
        unless = []
        if completed < count:
            # The loss has become NaN: not the step that hooks have prepared for.
            cadence.skip(self._hooks, completed - count)
            again = {CALLER: fetches}
            self._call_hook_before_run(context, again, None, config_pb2.RunOptions())
            unless = [
                hook
                for hook in self._hooks
                if not cadence.is_known(hook)
                and (hook in steps.lacking or differ(wanted, again, hook))
            ]
        self._shortening.end(completed, due)
        if not is_single:
            self._announcement.ended(completed, due)
        self._call_after_run(context, outputs, options, run_metadata, unless)
        return outputs[CALLER]

    def _up_to(self, due):
        """Give the length of a run, of the steps until each hook is due."""
        self._shortening.begin(due)
        known = [steps for steps in due if steps is not None]
        return self._run_length.up_to(min(known, default=None))

    def _call(self, plan, count, is_rest=False):
        if is_rest:
            return self._threads.run_untimed(
                plan.on_pool, plan.on_caller, np.int32(count)
            )
        return self._threads.run(
            plan.on_pool, plan.on_caller, np.int32(count), steps=count
        )


def _check_distinct(hooks):
    """Refuse a hook that is given twice: it counts each step that it sees twice."""
    seen: set = set()
    for hook in hooks:
        if id(hook) in seen:
            raise CannotFuse(f"is seen twice by one {type(hook).__name__}")
        seen.add(id(hook))


def _check_config(config: config_pb2.ConfigProto) -> None:
    """Refuse a ConfigProto whose settings are for one step in a call."""
    if config.graph_options.optimizer_options.global_jit_level > 0:
        raise CannotFuse("is compiled by XLA (global_jit_level)")
    if _compiles_all(os.environ):
        raise CannotFuse("is compiled by XLA (TF_XLA_FLAGS)")
    if config.operation_timeout_in_ms:
        raise CannotFuse("has a time limit of its own (operation_timeout_in_ms)")
    # Then the names of ops in branches, by which their random generators are kept, are
    # not the same in each.
    if config.graph_options.place_pruned_graph:
        raise CannotFuse("is placed anew for each request (place_pruned_graph)")


def _compiles_all(environ: Mapping[str, str]) -> bool:
    """Return whether TF_XLA_FLAGS let XLA compile any part of a graph."""
    flags = environ.get("TF_XLA_FLAGS", "")
    if flags and not flags.startswith("-"):  # the name of a file that has them
        try:
            with open(flags) as file:
                flags = file.read()
        except OSError:
            return False  # TensorFlow ignores it
    levels = re.findall(r"--tf_xla_auto_jit=(\S*)", flags)  # the last one counts
    return bool(levels) and re.fullmatch(r"0|-\d+", levels[-1]) is None


def _key(fetches):
    """Give what tells requests of the caller apart."""
    try:
        return structure(fetches)
    except CannotPlan:
        return object()  # equal to no other
