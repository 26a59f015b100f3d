"""TCP ports that are reserved for tasks which have not started yet.

If a port were picked, closed and passed on, any process could take it meanwhile. These
ports are held for as long as the job runs: their sockets are bound, but do not listen.
Linux lets a task that sets SO_REUSEADDR, as gRPC's servers do, listen on such a port.
But it assigns the port to no process that asks for any free port or connects from one.
"""

import socket


class HeldPorts:
    """Reserved ports of all interfaces, for processes that know their numbers."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def hold(self, port: int = 0) -> int:
        """Reserve a port, or any free one for 0, and return its number.

        Do nothing if this object holds it already.

        Raises:
            OSError: If another process has taken it, or the kernel has no more ports or
                file descriptors.
        """
        if port in [holder.getsockname()[1] for holder in self._sockets]:
            return port
        holder = socket.socket(socket.AF_INET6 if _has_ipv6() else socket.AF_INET)
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("", port))
        except OSError:
            holder.close()
            raise
        self._sockets.append(holder)
        return holder.getsockname()[1]

    def close(self) -> None:
        """Release all ports."""
        while self._sockets:
            self._sockets.pop().close()


def _has_ipv6() -> bool:
    """Return whether this machine has IPv6."""
    # The same check as in gRPC, which then listens on [::] for both families.
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            return True
    except OSError:
        return False
