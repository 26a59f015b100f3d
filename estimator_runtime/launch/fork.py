"""Forks the parent of the tasks, and makes a task of the child."""

import contextlib
import os
import signal
import sys
import warnings

from estimator_runtime.launch import descendants
from estimator_runtime.launch.task import STOP_SIGNALS
from estimator_runtime.reporting import FD_VARIABLE

_STDOUT_STDERR = (1, 2)


def fork(fds, environ, program=None):
    """Start a process of its own group, with all that a task has.

    It ends with this one, whatever becomes of this one.

    Args:
        fds: What it writes to: standard output, standard error and reports.
        environ: Its variables, beside those of this process.
        program: The command that it executes; None lets it go on here, as the child.

    Returns:
        Its pid; 0 in a child that goes on here.

    Raises:
        OSError: If there can be no more processes, or no memory for one.
    """
    parent = os.getpid()
    with warnings.catch_warnings():
        # TensorFlow's threads do not matter here: see `launch.parent`.
        warnings.simplefilter("ignore", DeprecationWarning)
        # One that comes before the task can take it must not be lost on it.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            raise
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        # Also here, whoever comes first: a signal may follow at once.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        descendants.set_death_signal(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        _become_task(fds, environ)
        if program is not None:
            os.execv(program[0], program)
        _seed_afresh()
    except BaseException as error:  # noqa: BLE001 - must not return as the parent
        os.write(2, f"cannot start the task: {error}\n".encode())
        os._exit(1)
    return 0


def _become_task(fds, environ):
    """Take over the pipes, the variables and the signals of a task."""
    stdout, stderr, reports = fds
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for fd, target in zip((stdout, stderr), _STDOUT_STDERR, strict=True):
        os.dup2(fd, target)
        os.close(fd)
    os.set_inheritable(reports, True)
    os.environ.update(environ, **{FD_VARIABLE: str(reports)})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # What is ignored here would stay so in the task. SIGHUP is to: a terminal that
    # closes is the launcher's to hear of, who lets the task save what it has.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _seed_afresh():
    """Let forked tasks draw numbers of their own; python's `random` does so itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
