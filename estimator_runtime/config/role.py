"""The role of a task: its type and index, checked against its cluster.

Standard library only, because both halves of the package import this module.

Error messages contain upstream's own phrases for the same mistakes verbatim (`If
"cluster" is set in TF_CONFIG, ...`), because programs and tests match them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from estimator_runtime.config.cluster_spec import Cluster, shown
from estimator_runtime.errors import ConfigError, ConfigTypeError


class TaskType:
    """The task types with a special meaning; a cluster may name others."""

    CHIEF = "chief"
    MASTER = "master"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


def read_task(task: object) -> dict[str, Any]:
    """Return the "task" object of TF_CONFIG, with a numeric index converted to int.

    The values of its keys are not checked.

    Raises:
        ConfigError: If `task` is not an object.
    """
    if not isinstance(task, dict):
        raise ConfigError(
            f"TF_CONFIG: task is {shown(task)}, not an object; "
            'use one such as {"type": "worker", "index": 0}'
        )
    index = task.get("index")
    # Launch scripts write "1", and upstream accepts it. The number of digits is
    # bounded, because int() takes quadratic time.
    if isinstance(index, str) and re.fullmatch("-?[0-9]{1,18}", index.strip()):
        return {**task, "index": int(index)}
    return task


def check_chief(cluster: Cluster, *, required: bool) -> None:
    """Check that there is one chief, or at most one if none is required."""
    if TaskType.CHIEF in cluster and TaskType.MASTER in cluster:
        raise ConfigError(
            "TF_CONFIG: cluster has both the jobs 'chief' and 'master'. "
            "If `master` node exists in `cluster`, job `chief` is not supported. "
            "Keep 'chief', and list the other address under 'worker'"
        )
    for task_type in (TaskType.CHIEF, TaskType.MASTER):
        count = len(cluster.get(task_type, ()))
        if count > 1:
            raise ConfigError(
                f"TF_CONFIG: cluster['{task_type}'] has {count} addresses. "
                f'The "cluster" in TF_CONFIG must have only one "{task_type}" node. '
                "Keep one, and list the others under 'worker'"
            )
        if count == 1:
            return
    if cluster and required:
        raise ConfigError(
            f"TF_CONFIG: cluster has the jobs {shown(list(cluster))}. "
            'If "cluster" is set in TF_CONFIG, it must have one "chief" node; '
            "add 'chief' with one address (only multi-worker strategies need none, as "
            "with --no-chief)"
        )


def check_task(cluster: Cluster, task: Mapping[str, Any], *, required: bool) -> None:
    """Check the task against its cluster.

    Args:
        cluster: The cluster, empty for a local run.
        task: The "task" object of TF_CONFIG.
        required: Whether a task of a cluster needs both its type and its index.

    Raises:
        ConfigTypeError: If the index is no number.
        ConfigError: If the cluster has no such task, or if there is no cluster and the
            task is not worker 0.
    """
    if not cluster:
        _check_local_task(task)
        return
    task_type: Any = task.get("type")
    types = _task_types(cluster)
    # An evaluator is not part of the training cluster, so its index has no bound.
    is_bounded = task_type in types and task_type != TaskType.EVALUATOR
    usable = _usable(len(cluster[task_type]) if is_bounded else 0)
    for field, remedy in (("type", f"one of {shown(types)}"), ("index", usable)):
        if task.get(field) in (None, "") and (required or field in task):
            given = shown(task[field]) if field in task else "missing"
            raise ConfigError(
                f'TF_CONFIG: task.{field} is {given}. If "cluster" is set in '
                f"TF_CONFIG, task {field} must be set; use {remedy}"
            )
    if "index" in task:
        check_index(task["index"], usable)
    if task_type == TaskType.EVALUATOR and TaskType.MASTER in cluster:
        raise ConfigError(
            "TF_CONFIG: task.type is 'evaluator'. If `master` node exists in "
            "`cluster`, task_type `evaluator` is not supported. "
            "Rename the job 'master' to 'chief'"
        )
    if "type" in task and task_type not in types:
        raise ConfigError(
            f"TF_CONFIG: task.type is {shown(task_type)}, which is not a valid "
            f"task_type in this cluster; use one of {shown(types)}"
        )
    if is_bounded:
        check_index_in_job(cluster, task_type, task.get("index", 0))


def check_index(index: object, usable: str) -> None:
    """Check the index of a task, except for its upper bound.

    Args:
        index: TF_CONFIG's `task.index`, as returned by `read_task`.
        usable: The valid values for the error message, such as "0 to 2".

    Raises:
        ConfigTypeError: If the index is no whole number, such as 1.7 and true, which
            upstream's int() accepts.
        ConfigError: If it is negative.
    """
    if not isinstance(index, int) or isinstance(index, bool):
        raise ConfigTypeError(
            f"TF_CONFIG: task.index is {shown(index)}, not a whole number; use {usable}"
        )
    if index < 0:
        raise ConfigError(
            f"TF_CONFIG: task.index is {shown(index)}. "
            f"Task index must be non-negative number. Use {usable}"
        )


def check_index_in_job(cluster: Cluster, task_type: str, index: int) -> None:
    """Raise a ConfigError unless a job of the cluster has a task with this index."""
    count = len(cluster[task_type])
    if index >= count:
        raise ConfigError(
            f"TF_CONFIG: task.index {shown(index)} is not a valid task_id for "
            f"task_type {task_type[:60]} in this cluster; use {_usable(count)}"
        )


def _usable(count: int) -> str:
    """Return the valid indexes of a job of `count` tasks; 0 is a job of any size."""
    return "0 or more" if not count else "0" if count == 1 else f"0 to {count - 1}"


def _task_types(cluster: Cluster) -> list[str]:
    if TaskType.MASTER in cluster:
        return [job for job in cluster if job != TaskType.EVALUATOR]
    return list(dict.fromkeys([*cluster, TaskType.EVALUATOR]))


def _check_local_task(task: Mapping[str, Any]) -> None:
    """Check that the task of a local run is worker 0, if its type and index are set."""
    for field, only, name in (("type", TaskType.WORKER, "WORKER"), ("index", 0, "0")):
        if task.get(field, only) != only:
            raise ConfigError(
                f'TF_CONFIG: task.{field} is {shown(task[field])}. If "cluster" is not '
                f"set in TF_CONFIG, task {field} must be {name}. Add the cluster, or "
                "leave task out"
            )
