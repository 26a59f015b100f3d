"""TensorBoard beside a training: started with it, and ended with it.

Standard library only: the command asks for it before TensorFlow is imported, and it is
a process of its own, see `dashboard_server`.
"""

import atexit
import contextlib
import importlib.util
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any, ClassVar

from estimator_runtime import terminal
from estimator_runtime.errors import ConfigError
from estimator_runtime.helper_process import helper_command

HOST = "127.0.0.1"
# In place of a port: the first that is free, from TensorBoard's own 6006.
FIRST_FREE = "first-free"
_ANSWER_SECS = 120.0  # it may import TensorFlow, beside a training that does
_END_SECS = 5.0
# What would make it a part of the training.
_NOT_INHERITED = ("TF_CONFIG", "ESTIMATOR_RUNTIME_CHILDREN")


def check(port):
    """Refuse what could only fail once the training is under way.

    Args:
        port: A port, 0 for any that is free, or `FIRST_FREE`.

    Raises:
        ConfigError: If TensorBoard is not installed, or the port is in use.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "--tensorboard needs the package tensorboard, which is not installed; "
            "install it with: pip install tensorboard"
        )
    if port in (FIRST_FREE, 0):
        return
    with socket.socket() as probe:
        # As servers do: one that has just ended does not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"--tensorboard: port {port} of {HOST} cannot be used "
                f"({error.strerror}); give another one, 0 for any that is free, or "
                "none for the first from 6006"
            ) from error


class Dashboard:
    """TensorBoard on one folder, until `close`, or the end of this process.

    Args:
        folder: The folder, with its subfolders; it may come up later.
        port: As for `check`.
        say: Called once with a line, by another thread: the address, when it answers,
            or why there is none.
    """

    def __init__(self, folder, port, say):
        self._say = say
        self._is_closed = False
        environ = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (as long as it runs)
        self._process = subprocess.Popen(
            helper_command(
                "estimator_runtime.dashboard_server",
                *(folder, str(port), str(os.getpid())),
            ),
            # It must not take memory of a GPU.
            env={
                **environ,
                "ESTIMATOR_RUNTIME_AUTO": "0",
                "CUDA_VISIBLE_DEVICES": "-1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the training
        )
        threading.Thread(
            target=self._announce, name="estimator_runtime TensorBoard", daemon=True
        ).start()

    @classmethod
    def started(cls, folder, port, say):
        """Give a new one; None, and say why, where the machine has no room for it."""
        try:
            return cls(folder, port, say)
        except OSError as error:
            say(f"TensorBoard could not be started: {error.strerror or error}")
            return None

    def close(self):
        """End it."""
        self._is_closed = True
        self._process.terminate()
        try:
            self._process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _announce(self):
        pipe: Any = self._process.stdout
        ready, _, _ = select.select([pipe], [], [], _ANSWER_SECS)
        line = pipe.readline() if ready else b""
        if line:
            answer = json.loads(line)
        elif ready:
            answer = {"problem": f"it has ended: {self._last_line()}"}
        else:
            answer = {"problem": f"it did not answer within {_ANSWER_SECS:g} s"}
        if self._is_closed:
            return
        if "url" in answer:
            self._say(f"TensorBoard: {answer['url']}")
        else:
            self._say(f"TensorBoard could not be started: {answer['problem']}")

    def _last_line(self):
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((each.strip() for each in reversed(lines) if each.strip()), "")


class _Wanted:
    """What the command has asked for, in the process that trains."""

    port: int | str | None = None
    pid = 0
    folders: ClassVar[list[str]] = []  # the first is shown


def want(port):
    """Let the first training of this process, which is the script's, have one."""
    _Wanted.port, _Wanted.pid = port, os.getpid()


def show(folder):
    """Start TensorBoard on a training's folder, if the command has asked for it.

    Args:
        folder: Where it writes its summaries, or None.
    """
    if _Wanted.port is None or folder is None or _Wanted.pid != os.getpid():
        return
    if folder in _Wanted.folders:
        return
    _Wanted.folders.append(folder)
    if _Wanted.folders[0] != folder:
        _say(f"TensorBoard shows {_Wanted.folders[0]!r}, and not {folder!r}")
        return
    dashboard = Dashboard.started(folder, _Wanted.port, _say)
    if dashboard is not None:
        atexit.register(dashboard.close)


def _say(line):
    # A bar may be drawn there: it comes back in the next line.
    clear = "\r\x1b[K" if terminal.can_redraw(sys.stderr) else ""
    # The program may have closed it, or been started without.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{clear}estimator-runtime: {line}\n")
        sys.stderr.flush()
