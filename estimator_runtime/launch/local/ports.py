"""TCP ports for tasks that have not started yet, safe from everybody else.

A port that is picked, closed and handed on may be taken by anybody meanwhile. These are
held open for as long as the job runs: bound, but not listening. Linux lets a task that
sets SO_REUSEADDR, as gRPC's servers do, listen on such a port, and gives it to nobody
who asks for any free port or connects from one.
"""

import socket


class HeldPorts:
    """Ports of all interfaces that only who knows the number can listen on."""

    def __init__(self):
        self._sockets: list[socket.socket] = []

    def take(self, count):
        """Give `count` more ports.

        Raises:
            OSError: If the kernel has no more ports or file descriptors.
        """
        return [self._hold(0) for _ in range(count)]

    def hold(self, port):
        """Hold this port, which another process has held before; again is no harm.

        Raises:
            OSError: If somebody else has taken it.
        """
        if port not in [holder.getsockname()[1] for holder in self._sockets]:
            self._hold(port)

    def _hold(self, port):
        holder = socket.socket(socket.AF_INET6 if _has_ipv6() else socket.AF_INET)
        self._sockets.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", port))
        return holder.getsockname()[1]

    def close(self):
        """Let go of all ports."""
        while self._sockets:
            self._sockets.pop().close()


def _has_ipv6():
    # As gRPC asks: it then listens on [::] for both families.
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            return True
    except OSError:
        return False
