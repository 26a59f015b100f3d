"""The TensorBoard process, which `tensorboard.Dashboard` starts.

It ends when its parent process ends, for any reason. Its one line on standard output is
for the user: the address once TensorBoard listens, or why it does not.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from estimator_runtime import threads
from estimator_runtime.output.tensorboard import FIRST_FREE, HOST

_CHECK_SECS = 0.5
_EXIT_SECS = 3.0


def main(arguments: Sequence[str]) -> int:
    """Run TensorBoard until the parent process is gone.

    Args:
        arguments: The folder; the port, 0 or `FIRST_FREE`; the pid of the parent.

    Returns:
        The exit status.
    """
    folder, port, parent = arguments
    # Exit regularly, so that the files of TensorBoard's data server are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Started before the imports, which take seconds.
    threads.start("parent", _end_with, int(parent))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output must not look like the answer
    try:
        url = _serve(folder, port)
    except Exception as error:  # noqa: BLE001 - reported to the parent
        # TensorBoard's own errors have their text in an attribute.
        text = getattr(error, "msg", None) or f"{type(error).__name__}: {error}"
        problem = " ".join(str(text).split())
        print(f"TensorBoard could not be started: {problem}", file=answers, flush=True)
        return 1
    print(f"TensorBoard: {url}", file=answers, flush=True)
    threading.Event().wait()
    return 0


def _serve(folder: str, port: str) -> str:
    from tensorboard import program

    server = program.TensorBoard()
    # If no port is given, TensorBoard finds a free one itself.
    ports = [] if port == FIRST_FREE else ["--port", port]
    server.configure(["tensorboard", "--logdir", folder, "--host", HOST, *ports])
    return server.launch()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_CHECK_SECS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_EXIT_SECS)
    os._exit(0)
