"""Ports that are held for tasks that start later."""

import socket

import pytest

from estimator_runtime.launch.backends.local.ports import HeldPorts


def test_a_held_port_is_given_to_nobody_else_but_a_server_can_listen_on_it():
    ports = HeldPorts()
    port = ports.hold()
    try:
        # As gRPC's servers do; bound to the other family's wildcard as they are.
        with socket.socket(socket.AF_INET6) as server, socket.socket() as client:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("::", port))
            server.listen()
            client.connect(("127.0.0.1", port))
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
    finally:
        ports.close()


def test_a_port_that_cannot_be_held_leaves_no_other_number_behind():
    ports = HeldPorts()
    try:
        with socket.socket(socket.AF_INET6) as other:
            other.bind(("::", 0))
            other.listen()
            with pytest.raises(OSError, match="in use"):
                ports.hold(other.getsockname()[1])
        assert ports.hold() > 0
    finally:
        ports.close()
