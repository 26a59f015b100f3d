"""Session calls that run a packed step in place of the program's own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.loop.fusion.errors import of_single_step
from estimator_runtime.loop.graph import ops, xla
from estimator_runtime.loop.graph.subgraph import Subgraph
from estimator_runtime.loop.packing.step import CannotPack, NothingToPack, PackedStep
from estimator_runtime.loop.plan import (
    MAX_PLANS,
    CannotPlan,
    copied,
    is_plain,
    recipe,
    request_key,
)
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.tf_internals import op_kinds, sessions

# A program may have several steps, such as those of a generator and a discriminator.
_MAX_STEPS = 8
_COLLECTION = ("estimator_runtime", "packed_steps")  # of (key, PackedStep or None)


class PackingLog:
    """Logs what is packed and what is not, each message once.

    It outlives a lost session, so that the next one does not repeat the messages.
    """

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def __call__(self, text: str) -> None:
        """Log what is packed, or why a step runs as it is."""
        if text not in self._logged:
            self._logged.add(text)
            TRAINING_LOG.info("pack_transfers: %s", text)


class PackedRequest:
    """A request to a session, with the step replaced by a packed step.

    Args:
        session: The session.
        wanted: Fetches by consumer.
        step: The packed step.

    Raises:
        CannotPack: If only the step itself can serve the request.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        wanted: Mapping[Any, Any],
        step: PackedStep,
    ) -> None:
        self._session, self._step = session, step
        # The copy also keeps the leaves alive, because their key uses their identity.
        self._wanted = {consumer: copied(f) for consumer, f in wanted.items()}
        handler = sessions.FetchHandler(session.graph, self._wanted, {})
        if handler.has_handles:
            raise CannotPack("is asked for a session handle")
        fetches = handler.fetches()
        self._tensors, self._targets = step.substitutes(fetches, handler.targets())
        self.fetched = frozenset(tensor.ref() for tensor in fetches)
        names = [tensor.name for tensor in fetches]
        self._results = recipe(handler, names, lambda value: value)

    def run(
        self,
        feeds: Mapping[Any, Any] | None,
        options: config_pb2.RunOptions | None,
        run_metadata: config_pb2.RunMetadata | None,
    ) -> dict[Any, Any]:
        """Run the request; see `Session.run`.

        `options` and `run_metadata` may be None.

        Returns:
            Results by consumer.
        """
        try:
            if not feeds and options is None and run_metadata is None:
                values = sessions.run_parsed(
                    self._session, self._tensors, self._targets
                )
            else:
                values, _ = self._session.run(
                    (self._tensors, self._targets),
                    feed_dict=feeds,
                    options=options,
                    run_metadata=run_metadata,
                )
        except tf.errors.OpError as error:
            known = of_single_step(error, self._step.step)
            if known is error:
                raise
            raise known from None
        return self._results(values)


class PackedRequests:
    """The requests to one session that run a packed step.

    A packed step shares all state with the step itself. So the step can serve any of
    these requests with the same results, and other session calls can come in between.

    Args:
        session: The session in which the hooked session runs its steps.
        log: Logs what is packed.
    """

    def __init__(self, session: Any, log: PackingLog) -> None:
        self._session = session
        self._log = log
        self._lock = threading.Lock()  # a program may run steps in several threads
        # By key. The second item keeps alive what the key relies on.
        self._requests: dict[Hashable, tuple[PackedRequest | None, object]] = {}
        self._task_of: Callable[[tf.Operation], str | None] | None = None

    def get(
        self,
        fetches: Any,
        wanted: Mapping[Any, Any],
        feeds: Mapping[Any, Any] | None,
        options: config_pb2.RunOptions,
    ) -> PackedRequest | None:
        """Return a request that runs a packed step; None if the step itself must run.

        Args:
            fetches: What the program asks for.
            wanted: Fetches by consumer: those of the program and of the hooks.
            feeds: Fed values by tensor.
            options: The options of the call.
        """
        if sessions.is_closed(self._session):
            return None
        try:
            key = request_key(wanted)
        except CannotPlan:
            return None
        with self._lock:
            if key not in self._requests:
                if len(self._requests) == MAX_PLANS:
                    return None
                self._requests[key] = self._make(fetches, wanted), dict(wanted)
        request = self._requests[key][0]
        if request is None or (feeds and not _are_inputs(feeds, request)):
            return None
        return request

    def _make(self, fetches: Any, wanted: Mapping[Any, Any]) -> PackedRequest | None:
        """Return a new request; None if there cannot be one, which is logged."""
        try:
            step = self._step(fetches)
            return PackedRequest(self._session, wanted, step) if step else None
        except NothingToPack:
            return None
        except CannotPack as reason:
            self._log(f"a step runs as it is, because it {reason}")
            return None

    def _step(self, fetches: Any) -> PackedStep | None:
        """Return the packed step for what the program asks for.

        The result is None if that is no step, or could not be packed before.

        Raises:
            CannotPack: If the step cannot be packed.
        """
        graph = self._session.graph
        asked = sessions.FetchHandler(graph, fetches, {})
        targets, tensors = asked.targets(), asked.fetches()
        step = Subgraph(graph, [*targets, *(tensor.op for tensor in tensors)])
        if not _is_step(step):
            return None
        task_of = self._tasks()
        # An earlier session, which was lost, may have added it.
        known = graph.get_collection_ref(_COLLECTION)
        key = tuple(sorted({each.name for each in (*targets, *tensors)}))
        for each, packed in known:
            if each == key:
                return packed
        if len(known) >= _MAX_STEPS:
            raise CannotPack(f"is not one of the first {_MAX_STEPS}")
        known.append((key, None))
        packed = PackedStep(step, task_of)
        known[-1] = key, packed
        self._log(
            f"{packed.count} tensors of a step cross between tasks as "
            f"{packed.packed_count}"
        )
        return packed

    def _tasks(self) -> Callable[[tf.Operation], str | None]:
        """Return a function that finds the task of an op.

        Raises:
            CannotPack: If a copy of a step is not known to produce equal results.
        """
        if self._task_of is None:
            _check_config(sessions.config_of(self._session))
            devices = self._session.list_devices()
            others = [d.name for d in devices if d.device_type != "CPU"]
            if others:
                raise CannotPack(f"may run on another device than a CPU, {others[0]!r}")
            self._task_of = task_finder(device.name for device in devices)
        return self._task_of


def _is_step(part: Subgraph) -> bool:
    """Return whether a part trains, or hands gradients to a chief that does."""
    # In the steps of a SyncReplicasOptimizer only accumulators are updated.
    return ops.any_trains(part.graph, part.ops.values()) or any(
        op_kinds.of(op.type).accumulates for op in part.ops.values()
    )


def _are_inputs(feeds: Mapping[Any, Any], request: PackedRequest) -> bool:
    """Return whether all feeds are for placeholders that are not fetched as well."""
    return all(
        isinstance(fed, tf.Tensor)
        and fed.op.type == "Placeholder"
        and fed.ref() not in request.fetched
        for fed in feeds
    )


def _check_config(config: config_pb2.ConfigProto) -> None:
    """Raise CannotPack if the results of an op may depend on the ops around it."""
    if reason := xla.reason(config):
        raise CannotPack(reason)
    if name := xla.mixed_precision(config):
        raise CannotPack(f"is computed in mixed precision ({name})")


def is_remote(session: Any) -> bool:
    """Return whether a session is TensorFlow's own and has a gRPC master."""
    return is_plain(session) and bool(session.sess_str)


def task_finder(devices: Iterable[str]) -> Callable[[tf.Operation], str | None]:
    """Return a function from an op to the name of the task that runs it.

    The name is such as "/job:ps/replica:0/task:0". It is None if TensorFlow could
    choose between several tasks, and for an op that calls functions, because their ops
    may run in other tasks.

    Args:
        devices: Full names of a session's devices, such as
            "/job:ps/replica:0/task:0/device:CPU:0".
    """
    specs = [tf.DeviceSpec.from_string(name) for name in devices]
    tasks = {_task_name(spec): spec for spec in specs}

    @functools.cache
    def named_by(device: str) -> str | None:
        asked = tf.DeviceSpec.from_string(device)
        found = [
            name
            for name, spec in tasks.items()
            if asked.job in (None, spec.job)
            and asked.replica in (None, spec.replica)
            and asked.task in (None, spec.task)
        ]
        return found[0] if len(found) == 1 else None

    @functools.cache
    def task_of(op: tf.Operation) -> str | None:
        if op_kinds.of(op.type).calls_functions:
            return None
        resource = next((t.op for t in op.inputs if t.dtype == tf.resource), None)
        # Only the task that has the resource can run the op.
        return named_by(op.device) if resource is None else task_of(resource)

    return task_of


def _task_name(spec: tf.DeviceSpec) -> str:
    return f"/job:{spec.job}/replica:{spec.replica or 0}/task:{spec.task or 0}"
