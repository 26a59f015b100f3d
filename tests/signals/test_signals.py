"""Stop signals of a process whose main thread may be busy; each test forks one."""

import ctypes
import os
import resource
import signal
import threading
import time

import pytest

from estimator_runtime.signals import request
from estimator_runtime.signals.inbox import SignalInbox

WENT_ON = 7
TERM, INT = signal.SIGTERM, signal.SIGINT
NOTICES = [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]


@pytest.fixture
def status():
    """Return a function that calls another one in a child; its status, or WENT_ON."""

    def run(function):
        pid = os.fork()
        if pid == 0:
            try:
                for number in (TERM, *NOTICES):
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(INT, signal.default_int_handler)
                function()
                os._exit(WENT_ON)
            except KeyboardInterrupt:
                os._exit(130)
            finally:
                os._exit(99)
        _, ended = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(ended)

    return run


def watch(grace_secs=60.0):
    os.environ["ESTIMATOR_RUNTIME_STOP_GRACE_SECS"] = str(grace_secs)
    request.Watch()


def come(*numbers, pause_secs):
    for number in numbers:
        os.kill(os.getpid(), number)
        time.sleep(pause_secs)


def hang(number):
    """Stay in a native call for two seconds, while a signal comes to another thread."""

    def send():
        time.sleep(0.01)
        os.kill(os.getpid(), number)
        time.sleep(5)

    threading.Thread(target=send, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    ctypes.CDLL(None).sleep(2)


@pytest.mark.parametrize("number", [TERM, INT])
def test_a_signal_that_comes_twice_at_once_is_one_request(status, number):
    def program():
        watch()
        come(number, number, number, pause_secs=0.001)
        time.sleep(0.1)

    assert status(program) == WENT_ON


@pytest.mark.parametrize("number, ended", [(TERM, 143), (INT, 130)])
def test_a_signal_that_comes_again_later_ends_the_process(status, number, ended):
    def program():
        watch()
        come(number, number, pause_secs=0.15)
        time.sleep(5)

    assert status(program) == ended


@pytest.mark.parametrize("number", [TERM, INT])
def test_what_counts_is_when_a_signal_comes_not_when_a_step_lets_it_be_handled(
    status, number
):
    def program():
        watch()
        os.kill(os.getpid(), number)  # handled at once
        hang(number)  # handled after two seconds

    assert status(program) == WENT_ON


@pytest.mark.parametrize("number", NOTICES)
def test_the_sequel_of_a_notice_is_the_same_request_and_a_further_one_is_not(
    status, number
):
    def program():
        watch()
        come(number, number, TERM, pause_secs=0.15)
        os.write(1, b"saves\n")
        come(TERM, pause_secs=5)

    assert status(program) == 143


@pytest.mark.parametrize("number", NOTICES)
def test_a_notice_counts_against_the_grace_period(status, number):
    def program():
        watch(grace_secs=0.1)
        os.kill(os.getpid(), number)
        ctypes.CDLL(None).sleep(5)

    assert status(program) == 128 + number


def open_many_files():
    """Make the next descriptors larger than those that `select` takes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for _ in range(1024):
        os.dup(2)


def test_a_step_that_hangs_is_ended_in_a_process_with_many_open_files(status):
    def program():
        open_many_files()
        watch(grace_secs=0.1)
        hang(TERM)

    assert status(program) == 143


def test_a_step_that_hangs_is_ended_beside_a_wakeup_descriptor_of_the_program(
    status, tmp_path
):
    def program():
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        watch(grace_secs=0.2)
        threading.Thread(
            target=lambda: (tmp_path / "seen").write_bytes(os.read(reader, 9)),
            daemon=True,
        ).start()
        hang(TERM)

    assert status(program) == 143
    assert (tmp_path / "seen").read_bytes() == bytes([TERM])


def test_a_program_gets_its_wakeup_descriptor_back(status):
    def program():
        _reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        SignalInbox(lambda *_: None).close()
        assert signal.set_wakeup_fd(-1) == writer
        inbox = SignalInbox(lambda *_: None)
        signal.set_wakeup_fd(writer)  # the program sets one meanwhile
        inbox.close()
        assert signal.set_wakeup_fd(-1) == writer

    assert status(program) == WENT_ON


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_second_signal_counts_though_the_program_has_set_its_own_wakeup_descriptor(
    number, status
):
    def program():
        watch()
        signal.set_wakeup_fd(-1)  # as asyncio does with its last handler
        come(number, pause_secs=0.15)
        come(number, pause_secs=5.0)

    assert status(program) == 128 + number
