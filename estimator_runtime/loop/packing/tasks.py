"""Finds which task of a cluster runs an op, if the graph leaves no choice."""

from collections.abc import Iterable

import tensorflow as tf

from estimator_runtime.loop.graph import ops


class TaskOfOp:
    """Finds the task that runs an op.

    Args:
        devices: Full names of a session's devices, such as
            "/job:ps/replica:0/task:0/device:CPU:0".
    """

    def __init__(self, devices: Iterable[str]) -> None:
        specs = [tf.DeviceSpec.from_string(name) for name in devices]
        self._tasks = {_task_name(spec): spec for spec in specs}
        self._of_device: dict[str, str | None] = {}
        self._of_op: dict[str, str | None] = {}

    def __call__(self, op: tf.Operation) -> str | None:
        """Return the name of the task, such as "/job:ps/replica:0/task:0".

        The result is None if TensorFlow could choose between several tasks. It is also
        None for an op that calls functions, because their ops may run in other tasks.
        """
        if op.name not in self._of_op:
            self._of_op[op.name] = self._find(op)
        return self._of_op[op.name]

    def _find(self, op: tf.Operation) -> str | None:
        if ops.takes_function(op.type):
            return None
        resource = next((t.op for t in op.inputs if t.dtype == tf.resource), None)
        if resource is None:
            return self._named_by(op.device)
        # Only the task that has the resource can run the op.
        return self(resource)

    def _named_by(self, device: str) -> str | None:
        """Return the task that a device string determines, or None."""
        if device not in self._of_device:
            asked = tf.DeviceSpec.from_string(device)
            found = [
                name
                for name, spec in self._tasks.items()
                if asked.job in (None, spec.job)
                and asked.replica in (None, spec.replica)
                and asked.task in (None, spec.task)
            ]
            self._of_device[device] = found[0] if len(found) == 1 else None
        return self._of_device[device]


def _task_name(spec: tf.DeviceSpec) -> str:
    return f"/job:{spec.job}/replica:{spec.replica or 0}/task:{spec.task or 0}"
