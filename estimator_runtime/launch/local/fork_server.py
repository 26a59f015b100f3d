"""The process whose children are the tasks of a local job.

It starts and reaps them, as a launcher asks over a socket. The launcher signals them
itself once it has heard their pids: this process may be stopped. Warm, it has imported
TensorFlow and forks tasks that need not do so again; cold, each task is a new Python
that runs `estimator-runtime run`. It never executes an op: TensorFlow's threads
do not survive a fork, and a child would wait for them for ever.

It is deaf to the signals that ask for an end, which may come to all processes at once:
the launcher stops the tasks in order, and the parent is the last to go.

Nobody outlives it: what a task has started, in sessions of its own too, ends with the
task, and when the launcher is gone, however it ended, all that is left. Should the
parent be killed itself, the kernel kills the tasks, and the launcher what they started;
only a program that has cleared its environment is not found then.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket

from estimator_runtime.errors import EstimatorRuntimeError, LaunchError
from estimator_runtime.helper_process import helper_command
from estimator_runtime.launch import descendants
from estimator_runtime.launch.fork import fork
from estimator_runtime.launch.network import enter_private_network
from estimator_runtime.launch.task import STOP_SIGNALS

# Of one request: TF_CONFIG lists every task. A socket's default buffer is larger.
_MAX_MESSAGE = 131072


def main(arguments):
    """Serve the launcher on the socket whose file descriptor is given.

    Args:
        arguments: The descriptor; the pid of the launcher; "warm" or "cold"; "shared"
            or "private" network; then the arguments of `estimator-runtime` for every
            task.

    Returns:
        The exit status: of the parent, or, in a forked child, of its task.
    """
    connection = socket.socket(fileno=int(arguments[0]))
    connection.set_inheritable(False)
    launcher, command = int(arguments[1]), arguments[4:]
    is_warm, is_private = arguments[2] == "warm", arguments[3] == "private"
    os.setpgid(0, 0)  # Ctrl-C is for the launcher, which stops the tasks in order
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # The launcher has held them back until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    descendants.set_death_signal(signal.SIGKILL)
    if os.getppid() != launcher:
        return 1  # it was gone before we asked
    try:
        if is_private:
            enter_private_network()
        if is_warm:
            _warm_up()
    except EstimatorRuntimeError as error:
        _send(connection, {"refused": str(error)})
        return 1
    descendants.adopt_orphans()
    # From here on the end of the launcher is seen on the socket.
    descendants.set_death_signal(0)
    _send(connection, {"ready": os.getpid()})
    is_task = Parent(connection, command if not is_warm else None).serve()
    if not is_task:
        return 0
    # The child of a fork has left the loop above, to end as any program does.
    from estimator_runtime import cli

    return cli.main(command)


class Parent:
    """Starts, signals and reaps the tasks of one launcher.

    Attributes:
        connection: The socket to the launcher.
        command: What a task executes; None forks this process instead.
    """

    def __init__(self, connection, command):
        self.connection, self.command = connection, command
        self._pid = os.getpid()
        self._pids: dict[int, int] = {}  # by the number that the launcher gave

    def serve(self):
        """Do what the launcher asks, until it is gone; then nothing of it is left.

        Returns:
            Whether this is a forked child, which has a task to do.
        """
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector, reader, writer:
            selector.register(self.connection, selectors.EVENT_READ)
            selector.register(reader, selectors.EVENT_READ)
            try:
                return self._serve(selector, reader)
            finally:
                # Before the descriptors that a task must not have are closed.
                signal.set_wakeup_fd(-1)
                if os.getpid() == self._pid:
                    self._kill_all()

    def _serve(self, selector, reader):
        while True:
            for key, _ in selector.select():
                if key.fileobj is reader:
                    with contextlib.suppress(BlockingIOError):
                        reader.recv(4096)
                    self._reap()
                    continue
                is_open, is_task = self._answer()
                if is_task or not is_open:
                    return is_task

    def _answer(self):
        """Give (whether the launcher is there, whether this is the child)."""
        try:
            message, fds, _, _ = socket.recv_fds(self.connection, _MAX_MESSAGE, 3)
        except ConnectionResetError:  # it was killed, and had not read all we sent
            return False, False
        if not message:
            return False, False
        request = json.loads(message)
        number = request["task"]
        if "signal" in request:
            if number in self._pids:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._pids[number], request["signal"])
            return True, False
        is_task = self._start(number, fds, request["environ"])
        return True, is_task

    def _start(self, number, fds, environ):
        """Start a task, if that is possible; tell whether this is the child."""
        program = None
        if self.command is not None:
            program = helper_command("estimator_runtime.cli", *self.command)
        mark = {descendants.RUN_VARIABLE: str(number)}
        try:
            pid = fork(fds, {**environ, **mark}, program)
        except OSError as error:
            # No room for one more, now: the others go on, and it may be tried again.
            with contextlib.suppress(OSError):  # nobody reads it any more
                os.write(fds[1], f"cannot start the task: {error}\n".encode())
            cause = f"could not be started: {error.strerror}"
            status = -int(signal.SIGKILL)
            self._tell({"ended": number, "status": status, "cause": cause})
        else:
            if pid == 0:
                self.connection.close()
                return True
            self._pids[number] = pid
            self._tell({"started": number, "pid": pid})
        for fd in fds:
            os.close(fd)
        return False

    def _reap(self):
        numbers = {pid: number for number, pid in self._pids.items()}
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):  # there are none at all
            while (ended := os.waitid(os.P_ALL, 0, options)) is not None:
                pid = ended.si_pid
                if pid not in numbers:  # adopted; its own children now are so too
                    os.waitpid(pid, 0)
                    descendants.kill_orphans(self._pids)
                    continue
                # Those it left behind, while its number cannot be anybody else's.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                number = numbers[pid]
                del self._pids[number]
                descendants.kill_orphans(self._pids)
                code = os.waitstatus_to_exitcode(status)
                self._tell({"ended": number, "status": code})

    def _tell(self, notice):
        # A launcher that is gone is seen where its requests are read.
        with contextlib.suppress(OSError):
            _send(self.connection, notice)

    def _kill_all(self):
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        descendants.kill_children()


def _warm_up():
    """Import what a task needs, and see that TensorFlow has executed nothing.

    The collector of garbage rests meanwhile, and never looks at what was imported: a
    fifth of the time to import TensorFlow is spent in it, and nearly all that a process
    needs to end. What it does not touch stays shared with the tasks.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    import estimator_runtime

    estimator_runtime.install()
    from tensorflow.python.eager import context

    import estimator_runtime.training

    gc.freeze()
    if is_collecting:
        gc.enable()
    if context.context_safe() is not None and context.context_safe()._initialized:
        raise LaunchError(
            "TensorFlow has executed an op while it was imported, and could not be "
            "forked; start the job with --cold"
        )


def _send(connection, message):
    connection.send(json.dumps(message).encode())
