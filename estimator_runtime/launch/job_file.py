"""The file by which a running job is found: what `estimator-runtime ps` lists.

Each supervisor keeps the progress of its job in a file that is only in memory, and that
the kernel removes when the supervisor ends, in whatever way. `ps` finds it among the
open files of all processes of the user, so it is found from any session: no folder is
needed on which both would have to agree.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job
    from estimator_runtime.launch.terminal.job_status import JobStatus

_NAME = "estimator-runtime-job"
_PROC = "/proc"
_MFD_CLOEXEC = 1  # of <linux/memfd.h>
_numbers = itertools.count()  # of the jobs of this process


class JobFile:
    """Holds the progress of one job for `estimator-runtime ps`.

    A job never fails because of it: where there is no such file, as on systems other
    than Linux, the job is not listed.

    Args:
        job: The job.
        backend: The name of the back end that runs it.
    """

    def __init__(self, job: Job, backend: str) -> None:
        self._file: IO[bytes] | None = None
        self._facts = {
            "pid": os.getpid(),
            "number": next(_numbers),
            # Without the mark that only the command line of a task needs.
            "command": [each for each in job.command[:2] if each != "--"]
            + list(job.command[2:]),
            "backend": backend,
            "folder": os.getcwd(),
        }

    def write(self, seen: JobStatus) -> None:
        """Replace the file by one with this progress."""
        # Not os.memfd_create, which Pythons that are built for old systems lack.
        create = getattr(ctypes.CDLL(None), "memfd_create", None)
        fd = -1 if create is None else create(_NAME.encode(), _MFD_CLOEXEC)
        if fd < 0:
            return
        file = os.fdopen(fd, "wb", buffering=0)
        with contextlib.suppress(OSError):  # a limit of file sizes, or no memory
            file.write(json.dumps({**self._facts, **dataclasses.asdict(seen)}).encode())
        # A file that is complete takes the place of the one before.
        self.remove()
        self._file = file

    def remove(self) -> None:
        """Remove the file, as the job has ended."""
        if self._file is not None:
            self._file.close()


def running_jobs() -> list[dict[str, Any]]:
    """Return what the supervisors of all running jobs of this user have written last.

    Returns:
        A dict for each job, by the pid of its supervisor: "pid", "command", "backend",
        "folder" (its current folder), and the fields of `JobStatus`.
    """
    found = {}
    pids = os.listdir(_PROC) if os.path.isdir(_PROC) else []
    for pid in filter(str.isdigit, pids):
        fds = os.path.join(_PROC, pid, "fd")
        # A process that ends, and those of other users, cannot be looked into.
        with contextlib.suppress(OSError):
            if os.stat(os.path.dirname(fds)).st_uid != os.geteuid():
                continue
            for path in (os.path.join(fds, fd) for fd in os.listdir(fds)):
                facts = _read(path)
                # A child that a supervisor has forked may have its file, too.
                if facts is not None and str(facts.get("pid")) == pid:
                    found[pid, facts.pop("number", 0)] = facts
    return sorted(found.values(), key=lambda facts: facts["pid"])


def _read(path: str) -> dict[str, Any] | None:
    """Return what a supervisor has written, or None if this is no such file."""
    try:
        if not os.readlink(path).startswith(f"/memfd:{_NAME} "):
            return None
        with open(path, encoding="utf-8") as file:
            # JSON has no NaN and no infinity, as a loss may be: they become None.
            facts = json.load(file, parse_constant=lambda _: None)
    except (OSError, ValueError):  # closed, or not yet written
        return None
    return facts if isinstance(facts, dict) else None
