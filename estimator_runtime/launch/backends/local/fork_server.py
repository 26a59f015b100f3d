"""The fork server: the parent process of all tasks of a local job.

It starts, signals and reaps the tasks as the launcher asks over a socket. A warm fork
server has imported TensorFlow and forks tasks, which need not import it again. In a
cold one, each task is a new Python process that runs `estimator-runtime run`. The fork
server never executes an op: TensorFlow's threads do not survive a fork, and a child
would wait for them forever.

The fork server ignores the stop signals, which all processes may receive at once. The
launcher stops the tasks in order, and the fork server ends last.

When a task ends, all processes that it has started end with it, even those in sessions
of their own. When the launcher is gone, however it ended, everything that is left ends.
If the fork server itself is killed, the kernel kills the tasks, but not the processes
that they have started.
"""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import pathlib
import selectors
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from estimator_runtime import reporting
from estimator_runtime.errors import EstimatorRuntimeError, LaunchError
from estimator_runtime.launch.backends.local import process_tree
from estimator_runtime.patching.injection import garbage_collector
from estimator_runtime.patching.injection.children import helper_command
from estimator_runtime.signals.inbox import STOP_SIGNALS, SignalInbox

# The size of a request, whose TF_CONFIG lists every task. The default buffer of a
# socket is larger.
_MAX_MESSAGE = 131072
# Of <sched.h>, <linux/sockios.h> and <net/if.h>.
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_IFREQ = "16sh22x"


def main(arguments: list[str]) -> int:
    """Serve the launcher on an inherited socket.

    Args:
        arguments: The file descriptor of the socket; the pid of the launcher; "warm" or
            "cold"; "shared" or "private" for the network; then the arguments of
            `estimator-runtime` for every task.

    Returns:
        The exit status of the fork server or, in a forked child, of its task.
    """
    connection = socket.socket(fileno=int(arguments[0]))
    connection.set_inheritable(False)
    launcher, command = int(arguments[1]), arguments[4:]
    is_warm, is_private = arguments[2] == "warm", arguments[3] == "private"
    # Ctrl-C must reach only the launcher, which stops the tasks in order.
    os.setpgid(0, 0)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # The launcher has started this process with these signals blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    process_tree.end_with(launcher)
    # As it is installed, so that nothing here imports a higher layer.
    distribution = importlib.metadata.distribution("estimator-runtime")
    scripts = distribution.entry_points.select(group="console_scripts")
    program = scripts["estimator-runtime"]
    try:
        if is_private:
            _enter_private_network()
        if is_warm:
            _warm_up()
            run_program = program.load()
    except EstimatorRuntimeError as error:
        _send(connection, {"refused": str(error)})
        return 1
    process_tree.adopt_orphans()
    # From here on, the end of the socket shows the end of the launcher.
    process_tree.end_with(None)
    _send(connection, {"ready": os.getpid()})
    own = None if is_warm else helper_command(program.module, *command)
    if not ForkServer(connection, own).serve():
        return 0
    # This is a forked child, which has left the loop above so that it can end like any
    # other program.
    return run_program(command)


class ForkServer:
    """Starts, signals and reaps the tasks of one launcher.

    Args:
        connection: The socket to the launcher.
        command: The command of a new process per task; None forks this process
            instead.
    """

    def __init__(self, connection: socket.socket, command: list[str] | None) -> None:
        self._connection, self._command = connection, command
        self._pid = os.getpid()
        self._pids: dict[int, int] = {}  # by the number that the launcher assigned
        # Each running task opens its pipe by this process's descriptor.
        self._reports: dict[int, int] = {}

    def serve(self) -> bool:
        """Serve requests until the launcher is gone, then kill all that is left.

        Returns:
            Whether this is a forked child, which has to run a task.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored
        ended = SignalInbox(lambda *_: None, [signal.SIGCHLD])
        with selectors.DefaultSelector() as selector, contextlib.closing(ended):
            selector.register(self._connection, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            try:
                return self._serve(selector, ended)
            finally:
                if os.getpid() == self._pid:
                    self._kill_all()

    def _serve(self, selector: selectors.BaseSelector, ended: SignalInbox) -> bool:
        """Serve requests and reap children; `ended` receives SIGCHLD."""
        while True:
            for key, _ in selector.select():
                if key.fileobj is ended:
                    ended.read()
                    self._reap()
                    continue
                is_task = self._answer()
                if is_task is not None:
                    return is_task

    def _answer(self) -> bool | None:
        """Serve one request; return None to go on, or else the result of `serve`."""
        try:
            message, fds, _, _ = socket.recv_fds(self._connection, _MAX_MESSAGE, 3)
        except ConnectionResetError:  # it was killed before it had read everything
            return False
        if not message:
            return False
        request = json.loads(message)
        number = request["task"]
        if "signal" in request:
            if number in self._pids:
                process_tree.signal_group(self._pids[number], request["signal"])
            return None
        return True if self._start(number, fds, request["environ"]) else None

    def _start(
        self, number: int, fds: Sequence[int], environ: Mapping[str, str]
    ) -> bool:
        """Start a task, or report its end; return True in a forked child."""
        stdout, stderr, self._reports[number] = fds
        os.set_inheritable(self._reports[number], False)
        try:
            pid = fork(fds, environ, self._command)
        except OSError as error:
            # There is no room for another process now. The other tasks go on, and the
            # launcher may try again.
            with contextlib.suppress(OSError):  # the reader may be gone
                os.write(fds[1], f"cannot start the task: {error}\n".encode())
            cause = f"could not be started: {error.strerror}"
            status = -int(signal.SIGKILL)
            self._notify({"ended": number, "status": status, "cause": cause})
            os.close(self._reports.pop(number))
        else:
            if pid == 0:
                self._connection.close()
                for fd in self._reports.values():
                    os.close(fd)
                return True
            self._pids[number] = pid
            self._notify({"started": number, "pid": pid})
        os.close(stdout)
        os.close(stderr)
        return False

    def _reap(self) -> None:
        """Reap the children that have ended, and kill what ended tasks left behind."""
        numbers = {pid: number for number, pid in self._pids.items()}
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):  # there are no children
            while (ended := os.waitid(os.P_ALL, 0, options)) is not None:
                pid = ended.si_pid
                if pid not in numbers:  # adopted; now its own children are, too
                    os.waitpid(pid, 0)
                    process_tree.kill_children(self._pids.values())
                    continue
                # The rest of its group. The pid of the group cannot be reused before
                # `waitpid`.
                process_tree.signal_group(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                number = numbers[pid]
                del self._pids[number]
                os.close(self._reports.pop(number))
                process_tree.kill_children(self._pids.values())
                code = os.waitstatus_to_exitcode(status)
                self._notify({"ended": number, "status": code})

    def _notify(self, notice: Mapping[str, Any]) -> None:
        # `_answer` notices that the launcher is gone.
        with contextlib.suppress(OSError):
            _send(self._connection, notice)

    def _kill_all(self) -> None:
        """Kill all tasks and everything that they have started."""
        for pid in self._pids.values():
            process_tree.signal_group(pid, signal.SIGKILL)
        process_tree.kill_descendants()


def _warm_up() -> None:
    """Import what a task needs, and check that TensorFlow has executed nothing.

    The garbage collector ignores what is imported: see `garbage_collector`. The memory
    that it does not touch stays shared with the tasks.

    Raises:
        LaunchError: If TensorFlow has executed an op.
    """
    is_spared = garbage_collector.is_wanted(os.environ)
    with garbage_collector.sparing() if is_spared else contextlib.nullcontext():
        import estimator_runtime

        estimator_runtime.install()
        import estimator_runtime.distributed.train_and_evaluate
        from estimator_runtime.tf_internals import sessions

    if sessions.has_executed_ops():
        raise LaunchError(
            "TensorFlow has executed an op while it was imported, and could not be "
            "forked; start the job with --cold"
        )


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.send(json.dumps(message).encode())


def fork(
    fds: Sequence[int], environ: Mapping[str, str], program: list[str] | None = None
) -> int:
    """Start the process of a task, in a process group of its own.

    The kernel kills it when this process ends, for whatever reason.

    Args:
        fds: The pipes for its standard output, its standard error and its reports.
        environ: Its variables, in addition to those of this process.
        program: The command that it executes. If None, the child returns from this
            function instead.

    Returns:
        The pid of the child; 0 in a child that returns.

    Raises:
        OSError: If there is no room or no memory for another process.
    """
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns when a process with threads forks. TensorFlow's threads are
        # harmless here: see the docstring of this module.
        warnings.simplefilter("ignore", DeprecationWarning)
        # A stop signal that arrives before the task can handle it must not be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            raise
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        # Both the parent and the child set the group, because the parent may have to
        # signal it before the child has run.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        process_tree.end_with(parent)
        process_tree.adopt_orphans()
        _become_task(fds, environ)
        if program is not None:
            os.execv(program[0], program)
        _seed_afresh()
    except BaseException as error:  # noqa: BLE001 - must not go on as the parent
        os.write(2, f"cannot start the task: {error}\n".encode())
        os._exit(1)
    return 0


def _become_task(fds: Sequence[int], environ: Mapping[str, str]) -> None:
    """Set up the pipes, the variables and the signal handlers of a task."""
    stdout, stderr, reports = fds
    # In this order: without a standard output of the parent, this file may get its
    # number, and is closed before the pipe takes it.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    pipe = f"{os.getpid()}:/proc/{os.getppid()}/fd/{reports}"
    os.environ.update(environ, **{reporting.VARIABLE: pipe})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A task inherits which signals are ignored. SIGHUP and the user signals stay
    # ignored: the launcher receives them too when a terminal closes, or when a batch
    # system announces its time limit, and stops the tasks in order. The limit of CPU
    # time is that of one process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _seed_afresh() -> None:
    """Seed NumPy anew, as Python reseeds its own `random` after a fork."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _enter_private_network() -> None:
    """Move this process and its future children to a network namespace of its own.

    TensorFlow's servers listen on every interface without authentication. Here the only
    interface is a loopback that no other process can reach. But the tasks cannot reach
    anything outside either, such as a remote file system.

    The process must have only one thread. It keeps its user and its group.

    Raises:
        LaunchError: If the kernel does not allow it.
    """
    user, group = os.geteuid(), os.getegid()
    proc = pathlib.Path("/proc/self")
    try:
        try:
            # Root may do this, and then keeps all rights.
            process_tree.call_libc("unshare", _CLONE_NEWNET)
        except PermissionError:
            process_tree.call_libc("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)
            with contextlib.suppress(FileNotFoundError):
                (proc / "setgroups").write_text("deny")
            (proc / "uid_map").write_text(f"{user} {user} 1")
            (proc / "gid_map").write_text(f"{group} {group} 1")
        _bring_loopback_up()
    except OSError as error:
        raise LaunchError(
            "--private-network: the kernel does not allow a private network here "
            f"({error.strerror or error}); leave it out, and run the job where nobody "
            "else can connect"
        ) from error


def _bring_loopback_up() -> None:
    with socket.socket() as any_socket:
        request = struct.pack(_IFREQ, b"lo", 0)
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        _, flags = struct.unpack(_IFREQ, answer)
        request = struct.pack(_IFREQ, b"lo", flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)
