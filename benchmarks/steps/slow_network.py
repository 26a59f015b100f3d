"""A slower network between processes of one machine: a relay that holds bytes back."""

import contextlib
import queue
import socket
import threading
import time

_CHUNK = 1 << 20


@contextlib.contextmanager
def relay(address, delay_secs):
    """Forward connections to an address, with a delay.

    Args:
        address: "127.0.0.1:PORT", where a server listens, or is about to.
        delay_secs: By how much each byte arrives later, in either direction.

    Yields:
        The address at which to connect instead.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Daemons: a connection ends with the processes at its ends.
        _start(_accept, listener, address, delay_secs)
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends the wait in `accept`


def _accept(listener, address, delay_secs):
    host, port = address.split(":")
    while True:
        try:
            near, _ = listener.accept()
        except OSError:  # closed
            return
        try:
            far = socket.create_connection((host, int(port)))
        except OSError:  # not there yet: the client tries again
            near.close()
            continue
        for source, target in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting = queue.SimpleQueue()
            _start(_read, source, waiting, delay_secs)
            _start(_write, target, waiting)


def _read(source, waiting, delay_secs):
    data = b"not the end"
    while data:
        try:
            data = source.recv(_CHUNK)
        except OSError:
            data = b""
        waiting.put((time.monotonic() + delay_secs, data))


def _write(target, waiting):
    with contextlib.suppress(OSError), target:
        while True:
            due, data = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                target.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(data)


def _start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()
