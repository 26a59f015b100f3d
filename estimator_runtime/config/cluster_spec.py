"""The cluster of a TF_CONFIG: the addresses of every task.

Standard library only, because both halves of the package import this module.
"""

from __future__ import annotations

import ipaddress
import re
import reprlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from estimator_runtime.errors import ConfigError, ConfigTypeError

_EXAMPLE = '{"chief": ["host0:2222"], "worker": ["host1:2222"]}'
_LEADERS = ("chief", "master")


class Cluster(Mapping[str, tuple[str, ...]]):
    """An immutable mapping from task type to the "host:port" addresses of its tasks.

    Position i is the task with index i. The cluster keeps a copy of what it is made
    from. Unlike a mappingproxy it can be hashed, pickled and deep-copied, which
    `RunConfig.replace` does. It equals any mapping with the same content. Pass
    `dict(cluster)` to `tf.train.ClusterSpec`.
    """

    def __init__(self, jobs: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Copy `jobs` and check its form, but not the syntax of its addresses.

        Args:
            jobs: Maps each task type to a list of addresses, or to a mapping from every
                index (0 to n-1, as int or string) to its address. A job without tasks
                counts as absent, because programs that remove a host from a list may
                leave it empty.

        Raises:
            ConfigTypeError: If `jobs`, a job or an address has the wrong type.
            ConfigError: If a job leaves out an index, if the job of the chief has no
                tasks, or if no job has any.
        """
        if not isinstance(jobs, Mapping):
            raise ConfigTypeError(
                f"TF_CONFIG: cluster is {shown(jobs)}, not an object; "
                f"use one such as {_EXAMPLE}"
            )
        every = {job: _addresses(job, tasks) for job, tasks in jobs.items()}
        self._jobs = {job: addresses for job, addresses in every.items() if addresses}
        if jobs and not self._jobs:
            raise ConfigError(
                f"TF_CONFIG: cluster is {shown(dict(jobs))}, jobs without tasks only; "
                "list their addresses, or leave the cluster out"
            )

    def __getitem__(self, job: str) -> tuple[str, ...]:
        return self._jobs[job]

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def __hash__(self) -> int:
        return hash(frozenset(self._jobs.items()))

    def __repr__(self) -> str:
        return f"Cluster({self._jobs!r})"

    def check_addresses(self) -> None:
        """Check that every address is a "host:port", and that none occurs twice.

        Only the text is checked: no name is resolved, and no port is opened.

        Raises:
            ConfigError: If an address has another form, such as a scheme, which aborts
                TensorFlow's process, or if two tasks have the same address.
        """
        owners: dict[str, str] = {}
        for job, addresses in self._jobs.items():
            for index, address in enumerate(addresses):
                field = f"cluster[{shown(job)}][{index}]"
                if not _is_address(address):
                    raise ConfigError(
                        f"TF_CONFIG: {field} is {shown(address)}, which is no address; "
                        "use 'host:port', such as 'host0:2222' or '[::1]:2222'"
                    )
                # Host names are case-insensitive.
                owner = owners.setdefault(address.lower(), field)
                if owner != field:
                    raise ConfigError(
                        f"TF_CONFIG: {field} is {shown(address)}, the same address "
                        f"as {owner}; give every task an address of its own"
                    )


def shown(value: object) -> str:
    """Return a value as text for an error message: one line, truncated if long."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxlist = _SHORT.maxtuple = 6
_SHORT.maxdict = 3
_SHORT.maxstring = _SHORT.maxother = 60


def _addresses(job: object, tasks: Any) -> tuple[str, ...]:
    """Return the addresses of one job, in the order of the task index."""
    if not isinstance(job, str) or not job:
        raise ConfigTypeError(
            f"TF_CONFIG: cluster has the job name {shown(job)}; "
            "use a task type such as 'worker'"
        )
    field = f"cluster[{shown(job)}]"
    if isinstance(tasks, Mapping):
        tasks = _in_index_order(field, tasks)
    is_list = isinstance(tasks, (list, tuple))
    if not is_list or not all(isinstance(each, str) for each in tasks):
        raise ConfigTypeError(
            f"TF_CONFIG: {field} is {shown(tasks)}, not a list of addresses; "
            'use one such as ["host:2222"]'
        )
    if not tasks and job in _LEADERS:
        # TensorFlow looks only for the name: each task would wait for this one.
        raise ConfigError(
            f"TF_CONFIG: {field} is {shown(tasks)}, a job without tasks; "
            "list its address, or leave the job out"
        )
    return tuple(tasks)


def _in_index_order(field: str, tasks: Mapping[Any, Any]) -> list[Any]:
    """Return the addresses of an {index: address} job, in the order of the index."""
    by_index = {str(index): address for index, address in tasks.items()}
    indexes = [str(index) for index in range(len(tasks))]
    if by_index.keys() != set(indexes):
        last = len(tasks) - 1
        raise ConfigError(
            f"TF_CONFIG: {field} has the indexes {shown(list(tasks))}; name each "
            f"index from 0 to {last} once, or use a list of addresses"
        )
    return [by_index[index] for index in indexes]


def _is_address(address: str) -> bool:
    """Return whether a text is a "host:port" whose host can be looked up."""
    # TensorFlow accepts spaces before the port, and upstream's own tests have one.
    host, _, port = re.sub(r": +(?=[0-9]+\Z)", ":", address).rpartition(":")
    # Port 0 is accepted. Nothing can listen on it, but programs that only describe a
    # cluster use it, among them upstream's own tests.
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        return False
    try:
        if in_brackets := re.fullmatch(r"\[(.*)\]", host):
            ipaddress.IPv6Address(in_brackets[1])
            return True
        host.encode("idna")  # as every host lookup does
    except ValueError:
        return False
    return host.isprintable() and re.fullmatch(r"[^\s:/@?#\[\]]+", host) is not None
