"""The process of TensorBoard, which `dashboard` starts.

It ends when its parent is gone, however that ended. Its first line on standard output
is a JSON object: {"url": ...} once it answers, or {"problem": ...}.
"""

import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.parse

from estimator_runtime.dashboard import FIRST_FREE, HOST

_LOOK_SECS = 0.5
_ANSWER_SECS = 60.0
_EXIT_SECS = 3.0


def main(arguments):
    """Serve until the parent is gone.

    Args:
        arguments: The folder; the port, 0 or `FIRST_FREE`; the pid of the parent.

    Returns:
        The exit status.
    """
    folder, port, parent = arguments
    # An end in order, which removes the files of TensorBoard's data server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Beside the imports too, which take seconds.
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no answer
    try:
        url = _serve(folder, port)
        _wait_for_answer(url)
    except Exception as error:  # noqa: BLE001 - told to the parent
        # TensorBoard's own errors have their text in an attribute.
        text = getattr(error, "msg", None) or f"{type(error).__name__}: {error}"
        print(json.dumps({"problem": " ".join(str(text).split())}), file=answers)
        return 1
    print(json.dumps({"url": url}), file=answers, flush=True)
    threading.Event().wait()
    return 0


def _serve(folder, port):
    from tensorboard import program

    server = program.TensorBoard()
    # Without a port it looks for one itself.
    ports = [] if port == FIRST_FREE else ["--port", port]
    server.configure(["tensorboard", "--logdir", folder, "--host", HOST, *ports])
    return server.launch()


def _wait_for_answer(url):
    address = urllib.parse.urlparse(url)
    # Not urllib: a proxy that is set would be asked.
    connection = http.client.HTTPConnection(
        address.hostname, address.port, timeout=_ANSWER_SECS
    )
    connection.request("GET", address.path or "/")
    status = connection.getresponse().status
    connection.close()
    if status != http.client.OK:
        raise RuntimeError(f"{url} answers with status {status}")


def _end_with(parent):
    while os.getppid() == parent:
        time.sleep(_LOOK_SECS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_EXIT_SECS)
    os._exit(0)
