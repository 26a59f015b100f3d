"""TF_CONFIG, the environment variable with the cluster and the role of a task.

The launcher writes it with this module, and the task reads it with this module.
Standard library only, because the launcher must not load TensorFlow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from estimator_runtime.config.cluster_spec import Cluster, shown
from estimator_runtime.config.role import TaskType, check_chief, check_task, read_task
from estimator_runtime.errors import ConfigError, ConfigTypeError

_EXAMPLE = (
    '{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
_TEXT_SETTINGS = (
    "session_master",
    "eval_session_master",
    "model_dir",
    "environment",
    "rpc_layer",
)
# The keys of TF_CONFIG besides cluster and task.
SETTINGS = ("service", *_TEXT_SETTINGS)


@dataclass(frozen=True, kw_only=True)
class TFConfig:
    """The checked content of TF_CONFIG; without arguments, a run on one machine.

    Every instance satisfies these rules. There is at most one chief. The task is part
    of the cluster, or an evaluator alongside it. Without a cluster the task is worker 0
    or unset. Whether a chief and a task are required, and whether addresses are
    checked, is decided where TF_CONFIG is read: see `from_environ`.

    Attributes:
        cluster: Addresses by task type; empty without a cluster.
        task_type: Type of this task, or None.
        task_index: Index of this task among those of its type, or None.
        service: What the platform says about itself, or None.
        session_master: Address that replaces the task's own as master, or None.
        eval_session_master: The same for evaluation, or None.
        model_dir: Folder of checkpoints and summaries, never empty, or None.
        environment: Platform kind, such as "cloud", or None.
        rpc_layer: Protocol between tasks, such as "grpc", or None.
    """

    cluster: Cluster = field(default_factory=Cluster)
    task_type: str | None = None
    task_index: int | None = None
    # Not hashed, because a dict has no hash. Equal configs still have equal hashes.
    service: dict[str, Any] | None = field(default=None, hash=False)
    session_master: str | None = None
    eval_session_master: str | None = None
    model_dir: str | None = None
    environment: str | None = None
    rpc_layer: str | None = None

    def __post_init__(self) -> None:
        _check_settings({name: getattr(self, name) for name in SETTINGS})
        check_chief(self.cluster, required=False)
        check_task(self.cluster, self._task(), required=False)

    @classmethod
    def from_environ(
        cls,
        environ: Mapping[str, str],
        *,
        check_addresses: bool = True,
        chief_required: bool = True,
        task_required: bool = True,
    ) -> TFConfig:
        """Read and check TF_CONFIG.

        Without TF_CONFIG the result is an empty TFConfig. An empty text is an error, as
        everywhere else in TensorFlow. Unknown keys are ignored, because platforms add
        their own, but no object may contain a key twice. A setting other than cluster
        and task may be null, which counts as absent. `{"cluster": {}}` counts as no
        cluster, and `{"worker": []}` alongside other jobs counts as no job.

        Args:
            environ: The environment, such as `os.environ`.
            check_addresses: Whether addresses must be well formed and distinct. The
                address of an only task is never checked, because no other task
                connects to it.
            chief_required: Whether a cluster needs a chief (or master). Pass False for
                multi-worker strategies, where worker 0 is the chief.
            task_required: Whether a cluster needs `task.type` and `task.index`.

        Raises:
            ConfigTypeError: For a wrong type where upstream raises TypeError.
            ConfigError: For any other error. The first one found is reported.
        """
        text = environ.get("TF_CONFIG")
        if text is None:
            return cls()
        document = parse(text)
        cluster = Cluster(document.get("cluster", {}))
        task = read_task(document.get("task", {}))
        config = cls(
            cluster=cluster,
            task_type=task.get("type"),
            task_index=task.get("index"),
            **{name: document.get(name) for name in SETTINGS},
        )
        check_chief(cluster, required=chief_required)
        check_task(cluster, task, required=task_required)
        if check_addresses and sum(map(len, cluster.values())) > 1:
            cluster.check_addresses()
        return config

    def to_json(self) -> str:
        """Return the text of an equivalent TF_CONFIG, with everything that is set.

        `from_environ` reads it back as an equal TFConfig, unless it requires more than
        this one has, such as a chief.
        """
        document: dict[str, Any] = {}
        if self.cluster:
            document["cluster"] = dict(self.cluster)
        if self._task():
            document["task"] = self._task()
        settings = {name: getattr(self, name) for name in SETTINGS}
        document.update({k: v for k, v in settings.items() if v is not None})
        return json.dumps(document)

    def _task(self) -> dict[str, Any]:
        """Return the "task" object of TF_CONFIG, with the keys that are set."""
        task = {"type": self.task_type, "index": self.task_index}
        return {key: value for key, value in task.items() if value is not None}


def check_form(environ: Mapping[str, str]) -> Cluster:
    """Check what every reader of TF_CONFIG needs: form, addresses, and the task.

    For example, an address with a scheme aborts the process inside TensorFlow when a
    strategy is created. A chief and a task may be missing, because only the program
    knows whether it needs them. But if there is a task, the cluster must have it.

    Returns:
        The cluster; empty if TF_CONFIG has none.

    Raises:
        ConfigError: If TF_CONFIG is not a JSON object, if its cluster or its settings
            have the wrong form, or if the cluster has no such task.
    """
    document = parse(environ.get("TF_CONFIG") or "{}")
    _check_settings({name: document.get(name) for name in SETTINGS})
    cluster = Cluster(document.get("cluster", {}))
    if cluster:
        check_chief(cluster, required=False)
        check_task(cluster, read_task(document.get("task", {})), required=False)
    cluster.check_addresses()
    return cluster


def task_name(environ: Mapping[str, str]) -> str | None:
    """Return the name of this process's task, such as "worker 1", or None.

    Call `check_form` first.
    """
    document = parse(environ.get("TF_CONFIG") or "{}")
    # `check_form` checks the task only if there is a cluster.
    task = read_task(document.get("task", {})) if document.get("cluster") else {}
    named = "type" in task and "index" in task
    return f"{task['type']} {task['index']}" if named else None


def parse(text: str) -> dict[str, Any]:
    """Parse the JSON object of a TF_CONFIG, without checking its content.

    Raises:
        ConfigError: If it is not a JSON object, or if an object in it contains a key
            twice.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object)
    except ConfigError:  # raised by _object, and also a ValueError
        raise
    # Not only JSONDecodeError: a number of thousands of digits is a ValueError.
    except (RecursionError, ValueError) as error:
        reason, at = str(error).splitlines()[0], getattr(error, "pos", 0)
        near = text[max(0, at - 28) : at + 28]
        raise ConfigError(
            f"TF_CONFIG: not JSON ({reason}): {shown(near)}; "
            f"use an object such as {_EXAMPLE}, or unset it"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"TF_CONFIG: the JSON is {shown(document)}, not an object; "
            f"use one such as {_EXAMPLE}"
        )
    return document


def count_trainers_with_ps(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many tasks train with parameter servers; 0 if the cluster has none.

    Args:
        environ: The environment; that of this process by default.

    Raises:
        ConfigError: If TF_CONFIG cannot be parsed, or its cluster has the wrong form.
    """
    cluster = Cluster(parse(environ.get("TF_CONFIG") or "{}").get("cluster", {}))
    if not cluster.get(TaskType.PS):
        return 0
    trainers = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
    return sum(len(cluster.get(task_type, ())) for task_type in trainers)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as dict; reject duplicate keys, which would hide a value."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(
                f"TF_CONFIG: the key {shown(key)} appears twice in one object, as "
                f"{shown(found[key])} and as {shown(value)}; keep one of them"
            )
        found[key] = value
    return found


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Check everything but the cluster and the task; None counts as unset."""
    service = settings["service"]
    if service is not None and not isinstance(service, dict):
        raise ConfigTypeError(
            f"TF_CONFIG: service is {shown(service)}. "
            'If "service" is set in TF_CONFIG, it must be a dict. '
            f"Given {type(service).__name__}; use an object, or leave service out"
        )
    for name in _TEXT_SETTINGS:
        value = settings[name]
        if value is not None and not isinstance(value, str):
            raise ConfigError(
                f"TF_CONFIG: {name} is {shown(value)}, not a string; "
                f"put it in quotes, or leave {name} out"
            )
    if settings["model_dir"] == "":
        raise ConfigError(
            "TF_CONFIG: model_dir is ''. model_dir in TF_CONFIG should be non-empty; "
            "name a folder, or leave model_dir out"
        )
