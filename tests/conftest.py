"""What all tests share. TensorFlow is not imported here: some tests are about that."""

import json
import pathlib
import random
import signal
import socket
import sys

import pytest


def pytest_configure():
    """Heed what `nohup` and a shell's `&` let this process, and its children, ignore."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_tf_config(monkeypatch):
    """Run on one machine, whatever the environment of the test run says."""
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture(autouse=True)
def _no_inheritance(monkeypatch):
    """Let the processes that a test starts be plain python, if it says no more."""
    monkeypatch.delenv("ESTIMATOR_RUNTIME_CHILDREN", raising=False)
    monkeypatch.setenv("ESTIMATOR_RUNTIME_AUTO", "0")


@pytest.fixture(autouse=True)
def _no_training_left():
    """Let no session that a test has left open have the signals of the next one."""
    yield
    preemption = sys.modules.get("estimator_runtime.preemption")
    if preemption is not None:
        preemption._request.end_all()


@pytest.fixture
def set_tf_config(monkeypatch):
    """Give a function that puts an object, or any text, into TF_CONFIG."""

    def set_tf_config(content):
        text = content if isinstance(content, str) else json.dumps(content)
        monkeypatch.setenv("TF_CONFIG", text)

    return set_tf_config


@pytest.fixture
def free_addresses():
    """Give a function that gives so many addresses of 127.0.0.1 that nobody uses.

    A port that the kernel chooses may be anyone's outgoing connection by the time the
    task that was to listen there has started: these are below the range it chooses
    from.
    """
    taken_from = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    lowest = int(taken_from.split()[0])
    ports = iter(random.sample(range(lowest // 3, lowest), 500))

    def free_addresses(count):
        found = []
        while len(found) < count:
            port = next(ports)
            try:
                socket.create_server(("", port)).close()
            except OSError:
                continue
            found.append(f"127.0.0.1:{port}")
        return found

    return free_addresses


@pytest.fixture(autouse=True)
def _xterm(monkeypatch):
    """Let terminals have colours and rows, whatever the environment of the test run says."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
