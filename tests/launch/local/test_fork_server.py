"""The parent of tasks, alone with a test as its launcher."""

import json
import os
import select
import signal
import socket
import subprocess
import sys

import pytest

# Its tasks fork a daemon, in a session of its own and with an empty environment. Both
# write who they are.
_SERVE = r"""
import contextlib, os, resource, signal, socket, sys
from estimator_runtime.launch.backends.local import process_tree
from estimator_runtime.launch.backends.local.fork_server import ForkServer

connection = socket.socket(fileno=int(sys.argv[1]))
connection.set_inheritable(False)
process_tree.adopt_orphans()
if sys.argv[2] == "as another user" and os.getuid() == 0:
    with contextlib.suppress(OSError):  # where there is no other user
        os.setuid(65534)  # a limit of processes is none for root
_, most = resource.getrlimit(resource.RLIMIT_NPROC)


def limit(number, _):
    count = 0 if number == signal.SIGUSR1 else most
    resource.setrlimit(resource.RLIMIT_NPROC, (count, most))


signal.signal(signal.SIGUSR1, limit)
signal.signal(signal.SIGUSR2, limit)
if ForkServer(connection, None).serve():
    name = "task"
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        name = "other"
    os.write(1, f"{name} {os.getpid()}\n".encode())
    if name == "other":
        os.execve("/bin/sleep", ["sleep", "600"], {})
    signal.pause()
"""
_WITHIN_SECS = 30


def _has_limits():
    """Whether a limit of processes counts here, for root by becoming another user."""
    if os.getuid() != 0:
        return True
    with open("/proc/self/uid_map") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= 65534 < first + count for first, _, count in ranges)


_needs_limits = pytest.mark.skipif(
    not _has_limits(), reason="root of a user namespace that has no other user"
)


class _Launcher:
    """The other end of a parent's connection."""

    def __init__(self, user, has_stdout):
        self.connection, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        self.connection.settimeout(_WITHIN_SECS)
        without = [] if has_stdout else ["/bin/sh", "-c", 'exec "$@" >&-', "sh"]
        with theirs:
            self.parent = subprocess.Popen(
                [*without, sys.executable, "-c", _SERVE, str(theirs.fileno()), user],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
            )

    def start(self, number, is_read=True):
        """Ask for a task; give the file of its standard output and error."""
        ours, theirs = os.pipe()
        if not is_read:
            os.close(ours)
        message = json.dumps({"task": number, "environ": {}}).encode()
        socket.send_fds(self.connection, [message], [theirs, theirs, theirs])
        os.close(theirs)
        return os.fdopen(ours) if is_read else None

    def hear(self):
        """Return the next notice of an end."""
        while "started" in (notice := json.loads(self.connection.recv(65536))):
            pass
        return notice

    def end(self):
        """Wait for the end of the parent; give its status and what it wrote."""
        _, written = self.parent.communicate(timeout=_WITHIN_SECS)
        return self.parent.returncode, written.decode()


@pytest.fixture
def launcher():
    """Return a function that gives a launcher; at the end none of its parents is left."""
    started = []

    def start(user="as this user", has_stdout=True):
        started.append(_Launcher(user, has_stdout))
        return started[-1]

    yield start
    for each in started:
        each.connection.close()  # it ends, and all it has started, if it is as it should
        try:
            each.parent.wait(_WITHIN_SECS)
        finally:
            each.parent.kill()
            each.parent.communicate()


def _pids(file):
    """Return the pids of a task and of the process that it has forked."""
    written = b""
    while written.count(b"\n") < 2:
        assert select.select([file], [], [], _WITHIN_SECS)[0], written
        data = os.read(file.fileno(), 4096)
        assert data, written
        written += data
    pids = dict(line.split() for line in written.splitlines())
    return [int(pids[name]) for name in (b"task", b"other")]


def _wait_until_gone(file):
    """Wait until nobody is left who has the other end of a task's pipe."""
    while True:
        assert select.select([file], [], [], _WITHIN_SECS)[0]
        if not os.read(file.fileno(), 4096):
            return


def _is_there(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def test_a_task_of_a_launcher_without_a_standard_output_has_one(launcher):
    with launcher(has_stdout=False).start(0) as output:
        assert len(_pids(output)) == 2


@_needs_limits
def test_a_task_for_which_there_is_no_process_fails_and_the_others_go_on(launcher):
    launched = launcher("as another user")
    with launched.start(0) as first:
        pids = _pids(first)
        launched.parent.send_signal(signal.SIGUSR1)  # no more processes
        with launched.start(1) as refused:
            assert launched.hear() == {
                "ended": 1,
                "status": -signal.SIGKILL,
                "cause": "could not be started: Resource temporarily unavailable",
            }
            assert refused.read() == (
                "cannot start the task: [Errno 11] Resource temporarily unavailable\n"
            )
        launched.start(3, is_read=False)
        assert launched.hear()["ended"] == 3
        assert all(map(_is_there, pids))
        with open(f"/proc/{launched.parent.pid}/status") as status:
            [blocked] = [line for line in status if line.startswith("SigBlk")]
        assert int(blocked.split()[1], 16) == 0  # the next task can be asked to end
        launched.parent.send_signal(signal.SIGUSR2)
        with launched.start(2) as second:
            assert len(_pids(second)) == 2
            launched.connection.close()
            assert launched.end() == (0, "")
            for each in (first, second):
                _wait_until_gone(each)


def test_a_daemon_of_a_task_that_is_killed_ends_with_it_and_others_go_on(launcher):
    launched = launcher()
    with launched.start(0) as first, launched.start(1) as second:
        task, _ = _pids(first)
        others = _pids(second)
        os.kill(task, signal.SIGKILL)
        assert launched.hear() == {"ended": 0, "status": -signal.SIGKILL}
        _wait_until_gone(first)
        assert all(map(_is_there, others))


def test_a_launcher_that_is_gone_before_it_is_answered_leaves_nobody(launcher):
    launched = launcher()
    with launched.start(0) as first:
        _pids(first)
        launched.parent.send_signal(signal.SIGSTOP)
        with launched.start(1) as second:
            launched.connection.close()
            launched.parent.send_signal(signal.SIGCONT)
            assert launched.end() == (0, "")
            for each in (first, second):
                _wait_until_gone(each)
