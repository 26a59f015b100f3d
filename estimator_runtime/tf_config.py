"""TF_CONFIG, the environment variable that tells a task its cluster and its role.

The launcher writes it, the task reads it: this is both ends of that wire.
Standard library only, because the launcher must not load TensorFlow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from estimator_runtime.cluster import Cluster, shown
from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.role import TaskType, check_chief, check_task

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
_SETTINGS = ("service", *_TEXT_SETTINGS)


@dataclass(frozen=True, kw_only=True)
class TFConfig:
    """What TF_CONFIG says, checked; without arguments, a run on one machine.

    Whoever holds one can rely on this: at most one chief; the task is part of the
    cluster, or an evaluator beside it; without a cluster it is worker 0 or unset.
    Whether there must be a chief and a task, and what addresses look like, is for
    the reader to say: see `from_environ`.

    Attributes:
        cluster: Task type to addresses; empty without a cluster.
        task_type: Type of this task, or None.
        task_index: Index of this task among those of its type, or None.
        service: What the platform says about itself, or None.
        session_master: Address that replaces the task's own as master, or None.
        eval_session_master: The same for evaluation, or None.
        model_dir: Folder of checkpoints and summaries, never empty, or None.
        environment: Kind of platform, such as "cloud", or None.
        rpc_layer: Protocol between tasks, such as "grpc", or None.
    """

    cluster: Cluster = field(default_factory=Cluster)
    task_type: str | None = None
    task_index: int | None = None
    # A dict has no hash; equal configs still have equal hashes without it.
    service: dict[str, Any] | None = field(default=None, hash=False)
    session_master: str | None = None
    eval_session_master: str | None = None
    model_dir: str | None = None
    environment: str | None = None
    rpc_layer: str | None = None

    def __post_init__(self) -> None:
        # A dict could still change after the check, and fields are not rewritten.
        if not isinstance(self.cluster, Cluster):
            raise ConfigTypeError(
                f"TFConfig: cluster is {shown(self.cluster)}, not a Cluster; "
                "use Cluster({...}), which copies and checks it"
            )
        _check_settings({name: getattr(self, name) for name in _SETTINGS})
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

        Missing, it gives the empty TFConfig; empty is a mistake, as everywhere else in
        TensorFlow. Unknown keys are ignored
        (platforms add their own); a setting other than cluster and task may be
        null, which is as good as absent. `{"cluster": {}}` is no cluster.

        Args:
            environ: The environment, such as `os.environ`.
            check_addresses: Whether addresses must be well formed and distinct.
            chief_required: Whether a cluster needs a chief (or master). False for
                multi-worker strategies, where worker 0 leads.
            task_required: Whether a cluster needs `task.type` and `task.index`.

        Raises:
            ConfigTypeError: For a wrong type where upstream raises TypeError.
            ConfigError: For any other mistake. Of several, the first is reported:
                form, then the number of chiefs, then the task, then addresses.
        """
        text = environ.get("TF_CONFIG")
        if text is None:
            return cls()
        document = _parse(text)
        settings = {name: document.get(name) for name in _SETTINGS}
        _check_settings(settings)
        cluster = Cluster(document.get("cluster", {}))
        task = _read_task(document.get("task", {}))
        # The constructor repeats these two, less strictly: it cannot know what
        # this reader requires, nor may it complain of the task before the chief.
        check_chief(cluster, required=chief_required)
        check_task(cluster, task, required=task_required)
        if check_addresses:
            cluster.check_addresses()
        return cls(
            cluster=cluster,
            task_type=task.get("type"),
            task_index=task.get("index"),
            **settings,
        )

    @property
    def chief_type(self) -> str | None:
        """What the cluster calls its chief: "chief", "master", or None without one."""
        for task_type in (TaskType.CHIEF, TaskType.MASTER):
            if task_type in self.cluster:
                return task_type
        return None

    def to_json(self) -> str:
        """Write what is set, as a TF_CONFIG that says the same.

        `from_environ` reads it back as an equal TFConfig, unless it requires more
        than this one has, such as a chief.
        """
        document: dict[str, Any] = {}
        if self.cluster:
            document["cluster"] = dict(self.cluster)
        if self._task():
            document["task"] = self._task()
        settings = {name: getattr(self, name) for name in _SETTINGS}
        document.update({k: v for k, v in settings.items() if v is not None})
        return json.dumps(document)

    def _task(self) -> dict[str, Any]:
        """The "task" object of TF_CONFIG, with the keys that are set."""
        task = {"type": self.task_type, "index": self.task_index}
        return {key: value for key, value in task.items() if value is not None}


def _parse(text: str) -> dict[str, Any]:
    """Read the JSON object that `text` is."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ConfigError(
            f"TF_CONFIG: nested too deeply to be read: {shown(text)}; "
            f"use an object such as {_EXAMPLE}"
        ) from error
    # Not only JSONDecodeError: a number of thousands of digits is a ValueError.
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"TF_CONFIG: not JSON ({reason}): {shown(text)}; "
            f"use an object such as {_EXAMPLE}"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(
            f"TF_CONFIG: the JSON is {shown(document)}, not an object; "
            f"use one such as {_EXAMPLE}"
        )
    return document


def _read_task(task: object) -> dict[str, Any]:
    """Return the "task" object, its index as int where it is a numeral."""
    if not isinstance(task, dict):
        raise ConfigError(
            f"TF_CONFIG: task is {shown(task)}, not an object; "
            'use one such as {"type": "worker", "index": 0}'
        )
    index = task.get("index")
    # Launch scripts write "1"; upstream takes it. Bounded, as int() is quadratic.
    if isinstance(index, str) and re.fullmatch("-?[0-9]{1,18}", index.strip()):
        return {**task, "index": int(index)}
    return task


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Check everything but the cluster and the task; None is unset."""
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
