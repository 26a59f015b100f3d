"""Runs TensorBoard alongside a training, from its start to its end.

TensorBoard runs in its own process; see `tensorboard_server`. This module uses only the
standard library, because the command needs it before TensorFlow is imported.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from estimator_runtime import threads
from estimator_runtime.output import terminal
from estimator_runtime.patching.injection.children import helper_command

HOST = "127.0.0.1"
# Used instead of a port number: the first free port from 6006, TensorBoard's default.
FIRST_FREE = "first-free"
_END_SECS = 5.0
# With these variables, TensorBoard would run as if it were a task of the training.
_NOT_INHERITED = ("TF_CONFIG", "ESTIMATOR_RUNTIME_CHILDREN")


class Dashboard:
    """A TensorBoard process for a folder, until `close` or the end of this process.

    Args:
        folder: The folder, with its subfolders; it does not need to exist yet.
        port: A port number, 0 for any free port, or `FIRST_FREE`.
        say: Called once, from another thread, with a line of text: the address as soon
            as TensorBoard listens, or the reason why it could not be started.
    """

    def __init__(
        self, folder: str, port: int | str, say: Callable[[str], None]
    ) -> None:
        self._say = say
        self._is_closed = False
        environ = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        # It must not allocate GPU memory.
        environ |= {"ESTIMATOR_RUNTIME_AUTO": "0", "CUDA_VISIBLE_DEVICES": "-1"}
        self._process = subprocess.Popen(
            helper_command(
                "estimator_runtime.output.tensorboard_server",
                *(folder, str(port), str(os.getpid())),
            ),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the training
        )
        threads.start("TensorBoard", self._announce)

    def close(self) -> None:
        """End the process."""
        self._is_closed = True
        self._process.terminate()
        try:
            self._process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _announce(self) -> None:
        answers: Any = self._process.stdout
        line = answers.readline().decode(errors="replace").strip()
        if not self._is_closed:
            self._say(line or "TensorBoard could not be started: its process has ended")


# The port, and the process that starts TensorBoard: no child that it forks. 0 for none.
_requested: tuple[int | str, int] = 0, 0
_folders: list[str] = []  # TensorBoard shows the first


def request(port: int | str | None) -> None:
    """Request TensorBoard for the first training of this process, or of its job.

    Args:
        port: As for `Dashboard`; None requests nothing.
    """
    global _requested
    _requested = (0, 0) if port is None else (port, os.getpid())


def has_started() -> bool:
    """Return whether `start_if_requested` has started TensorBoard, or has tried to."""
    return bool(_folders)


def _say(line: str) -> None:
    # Erase a progress bar that may be on this line; it is redrawn on the next one.
    clear = "\r\x1b[K" if terminal.can_redraw(sys.stderr) else ""
    terminal.write_error(f"{clear}estimator-runtime: {line}\n")


def start_if_requested(folder: str | None, say: Callable[[str], None] = _say) -> None:
    """Start TensorBoard on the folder of a training, if the command requested it.

    Args:
        folder: The folder with the summaries of the training, or None.
        say: Receives each line for the user.
    """
    port, pid = _requested
    if folder is None or folder in _folders or pid != os.getpid():
        return
    _folders.append(folder)
    if _folders[0] != folder:
        say(f"TensorBoard shows {_folders[0]!r}, and not {folder!r}")
        return
    try:
        atexit.register(Dashboard(folder, port, say).close)
    except OSError as error:
        say(f"TensorBoard could not be started: {error.strerror or error}")
