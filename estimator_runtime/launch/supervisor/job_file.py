"""The file by which a running job is found: what `estimator-runtime ps` lists.

Each supervisor writes the progress of its job into a small file in a folder that
belongs to the user, and removes it at the end. There is no server. The file of a
supervisor that was killed is recognized by its pid and the time at which the process
with that pid has started.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from estimator_runtime.launch.local.process_tree import start_ticks_of

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job
    from estimator_runtime.launch.terminal.job_status import JobStatus

_NAME = "estimator-runtime"
_numbers = itertools.count()  # of the jobs of this process


def folder_of_user(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder with the files of this user's jobs; it need not exist.

    It is in XDG_RUNTIME_DIR, if that is a folder, and else in the folder for temporary
    files.
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, _NAME)
    return os.path.join(tempfile.gettempdir(), f"{_NAME}-{os.geteuid()}")


class JobFile:
    """Writes the progress of one job for `estimator-runtime ps`.

    A job never fails because of it: if the file cannot be written, the job is not
    listed.

    Args:
        job: The job.
        backend: The name of the back end that runs it.
        folder: The folder of the user; None for `folder_of_user()`.
    """

    def __init__(self, job: Job, backend: str, folder: str | None = None) -> None:
        self._folder = folder_of_user() if folder is None else folder
        pid = os.getpid()
        name = f"{pid}-{next(_numbers)}.json"
        self._path = os.path.join(self._folder, name)
        self._facts = {
            "pid": pid,
            "start_ticks": start_ticks_of(pid),
            # Without the mark that only the command line of a task needs.
            "command": [each for each in job.command[:2] if each != "--"]
            + list(job.command[2:]),
            "backend": backend,
            "folder": os.getcwd(),
        }
        # Without a start time, nobody could tell that the job has ended.
        self._is_given_up = self._facts["start_ticks"] is None

    def write(self, seen: JobStatus) -> None:
        """Replace the file by one with this progress."""
        if self._is_given_up:
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            if not _is_ours(self._folder):
                raise PermissionError
            scratch = f"{self._path}.new"
            with open(scratch, "w") as file:
                json.dump({**self._facts, **seen.as_dict()}, file)
            os.replace(scratch, self._path)
        except OSError:
            self.remove()
            self._is_given_up = True

    def remove(self) -> None:
        """Remove the file, as the job has ended."""
        for path in (self._path, f"{self._path}.new"):
            with contextlib.suppress(OSError):
                os.remove(path)


def running_jobs(folder: str | None = None) -> list[dict[str, Any]]:
    """Return what the supervisors of all running jobs of this user have written last.

    Files of supervisors that are gone are removed.

    Args:
        folder: The folder of the user; None for `folder_of_user()`.

    Returns:
        A dict for each job, by the pid of its supervisor: "pid", "command", "backend",
        "folder" (its current folder), and the fields of `JobStatus`.
    """
    folder = folder_of_user() if folder is None else folder
    if not os.path.isdir(folder) or not _is_ours(folder):
        return []
    found = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if not name.endswith(".json"):
            continue
        try:
            with open(path) as file:
                # JSON has no NaN and no infinity, as a loss may be: they become None.
                facts = json.load(file, parse_constant=lambda _: None)
            ticks = facts.pop("start_ticks")
            is_running = start_ticks_of(facts["pid"]) == ticks
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # it has just ended, or is not ours
        if is_running:
            found.append(facts)
            continue
        for left in (path, f"{path}.new"):
            with contextlib.suppress(OSError):
                os.remove(left)
    return sorted(found, key=lambda facts: facts["pid"])


def _is_ours(folder: str) -> bool:
    """Return whether only this user can write a folder, which is no link."""
    with contextlib.suppress(OSError):
        found = os.lstat(folder)
        is_private = not found.st_mode & 0o022
        return (
            stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and is_private
        )
    return False
