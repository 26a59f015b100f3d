"""The local back end: every task is a process of this machine."""

import os
import resource
import sys
import threading

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.console import Console
from estimator_runtime.launch.processes import Processes
from estimator_runtime.launch.supervisor import Supervisor

# Two pipes, one for reports and the port that is held; and those of the launcher.
_FDS_PER_TASK = 4
_FDS_OF_LAUNCHER = 64
# What a task takes beside its model; a forked one shares what it has not changed.
_MB_PER_WARM_TASK, _MB_OF_WARM_PARENT = 80, 450
_MB_PER_COLD_TASK = 350


class LocalBackend:
    """Runs jobs as processes of this machine, on 127.0.0.1.

    Attributes:
        warm: Whether tasks are forked from one process that has imported TensorFlow;
            else each is a plain process that imports it.
        private_network: Whether the tasks get a network of their own, in which only
            they can reach each other.
        console: Where the lines of the tasks go.
    """

    def __init__(self, *, warm=True, private_network=False, console=None):
        self.warm, self.private_network = warm, private_network
        self.console = console or Console()

    def submit(self, job):
        """Start a job; see `Backend.submit`.

        Raises:
            ConfigError: If this is not Linux, TF_CONFIG is set here already, the log
                folder cannot be written, or there are too few file descriptors or too
                little memory.
        """
        _check_platform()
        _check_environ(os.environ)
        _check_log_dir(job)
        _check_descriptors(len(job.tasks))
        _check_memory(len(job.tasks), self.warm)
        processes = Processes(job, self.warm, self.private_network)
        return LocalJob(Supervisor(job, processes, self.console))


class LocalJob:
    """A job that runs here; ends at the latest with this process.

    The thread that starts the processes lives as long as the job, as it must: the
    kernel kills them when it ends.
    """

    def __init__(self, supervisor):
        self._supervisor = supervisor
        self._outcome = None
        self._failure = None
        self._thread = threading.Thread(
            target=self._run, name="estimator_runtime supervisor", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_secs=None):
        """Wait for the end of the job; see `JobHandle.wait`."""
        self._thread.join(timeout_secs)
        if self._thread.is_alive():
            raise TimeoutError(f"the job is still running after {timeout_secs} s")
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def cancel(self, exit_status=1, reason="the job was cancelled"):
        """Stop the job in order; see `JobHandle.cancel`.

        Args:
            exit_status: That of the outcome.
            reason: That of the outcome.
        """
        self._supervisor.cancel(exit_status, reason)

    def state(self):
        """Tell how far the job is; see `JobHandle.state`."""
        return self._supervisor.state

    def _run(self):
        try:
            self._outcome = self._supervisor.run()
        except BaseException as error:  # noqa: BLE001 - raised from wait()
            self._failure = error


def _check_platform():
    if sys.platform != "linux":
        raise ConfigError(
            f"clusters of local processes need Linux, and this is {sys.platform}; "
            "start each task yourself, with a TF_CONFIG of its own"
        )


def _check_environ(environ):
    if "TF_CONFIG" in environ:
        raise ConfigError(
            "TF_CONFIG is set in the environment, and the launcher makes one for each "
            "task; unset TF_CONFIG, or leave out --workers and --ps to run one task"
        )


def _check_log_dir(job):
    if job.log_dir is None:
        return
    try:
        os.makedirs(job.log_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"log folder {job.log_dir!r} cannot be made: {error.strerror}; give "
            "another one"
        ) from error
    if not os.access(job.log_dir, os.W_OK | os.X_OK):
        raise ConfigError(
            f"log folder {job.log_dir!r} cannot be written by this process; change its "
            "permissions, or give another one"
        )


def _check_descriptors(tasks):
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = tasks * _FDS_PER_TASK + _FDS_OF_LAUNCHER
    if limit != resource.RLIM_INFINITY and needed > limit:
        most = max(0, (limit - _FDS_OF_LAUNCHER) // _FDS_PER_TASK)
        raise ConfigError(
            f"{tasks} tasks need {needed} file descriptors, and the limit is {limit}; "
            f"start at most {most} tasks, or raise it: ulimit -n {needed}"
        )


def _check_memory(tasks, warm):
    available = _available_mb()
    if warm:
        needed = tasks * _MB_PER_WARM_TASK + _MB_OF_WARM_PARENT
    else:
        needed = tasks * _MB_PER_COLD_TASK
    if available is not None and needed > available:
        raise ConfigError(
            f"{tasks} tasks need about {needed} MB of memory at the least, and "
            f"{available} MB are free; start fewer tasks"
            + ("" if warm else ", or leave out --cold")
        )


def _available_mb():
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name == "MemAvailable":
                    return int(value.split()[0]) // 1024
    except OSError:
        pass
    return None
