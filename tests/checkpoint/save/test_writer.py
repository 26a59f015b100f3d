"""The thread that writes checkpoints: who waits for it, and what is said then."""

import logging
import os
import signal
import threading

import pytest

from estimator_runtime.checkpoint.save.writer import CheckpointWriter, wait_for_own
from estimator_runtime.errors import CheckpointError

LONG_SECS = 60  # nothing here takes it, unless it hangs


class Write:
    """A write that begins, and ends when it may."""

    def __init__(self, log, step):
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._log, self._step = log, step

    def __call__(self):
        self.begun.set()
        assert self.may_end.wait(LONG_SECS)
        self._log.append(self._step)


def test_where_no_thread_can_be_started_nothing_waits_for_it(monkeypatch):
    log, writer = [], CheckpointWriter()
    write = Write(log, 1)
    write.may_end.set()

    def refused(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as no_threads:
        no_threads.setattr(threading.Thread, "start", refused)
        with pytest.raises(CheckpointError) as raised:
            writer.submit(1, write)
    assert str(raised.value) == (
        "the checkpoint of step 1 cannot be written: can't start new thread; allow this "
        "process more of them (ulimit -u, or pids.max of its cgroup)"
    )
    writer.wait()
    writer.submit(1, write)
    writer.close()
    assert log == [1]


def test_whoever_waits_for_the_disk_says_so(caplog):
    writer, log = CheckpointWriter(named_every_secs=0.01), []
    write = Write(log, 7)

    class Seen(logging.Handler):
        def emit(self, record):
            write.may_end.set()  # only now: the wait cannot end before it is named

    logger = logging.getLogger("estimator_runtime.checkpoint.save.writer")
    handler = Seen()
    logger.addHandler(handler)
    try:
        writer.submit(7, write)
        assert write.begun.wait(LONG_SECS)
        writer.close()
    finally:
        logger.removeHandler(handler)
    assert log == [7]
    assert caplog.messages[0] == (
        "Training has waited 0.01 s for the checkpoint of step 7 to be written; is its "
        "disk responding?"
    )


def test_a_thread_waits_for_the_writes_of_its_own_only():
    log = []
    write, writer = Write(log, 1), CheckpointWriter()
    other = threading.Thread(target=writer.submit, args=[1, write])
    other.start()
    other.join(LONG_SECS)
    wait_for_own()
    assert log == []
    mine, of_mine = Write(log, 2), CheckpointWriter()
    of_mine.submit(2, mine)
    mine.may_end.set()
    wait_for_own()
    assert log == [2]
    write.may_end.set()
    writer.wait()


def test_a_forked_child_waits_for_no_write_of_its_parent():
    write, writer = Write([], 1), CheckpointWriter()
    writer.submit(1, write)
    assert write.begun.wait(LONG_SECS)
    child = os.fork()
    if not child:
        signal.alarm(LONG_SECS)
        wait_for_own()
        os._exit(7)
    _, status = os.waitpid(child, 0)
    write.may_end.set()
    writer.wait()
    assert os.waitstatus_to_exitcode(status) == 7
