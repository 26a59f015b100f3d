"""The thread that writes checkpoints: its order, its queue of one, its errors."""

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

    def __init__(self, log, step, error=None):
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._log, self._step, self._error = log, step, error

    def __call__(self):
        self.begun.set()
        assert self.may_end.wait(LONG_SECS)
        if self._error is not None:
            raise self._error
        self._log.append(self._step)


class Waits(logging.Handler):
    """An event of the first line that says that somebody waits for the disk."""

    def __init__(self):
        super().__init__()
        self._seen = threading.Event()
        self.wait = self._seen.wait

    def emit(self, record):
        if "Training has waited" in record.getMessage():
            self._seen.set()


@pytest.fixture
def waits():
    logger = logging.getLogger("estimator_runtime.checkpoint.save.writer")
    handler = Waits()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def in_thread(function):
    """Run a function that may block; give the thread, and the event of its end."""
    ended = threading.Event()

    def run():
        function()
        ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return ended


def test_writes_run_in_order_while_the_caller_goes_on():
    log, writer = [], CheckpointWriter()
    writes = [Write(log, step) for step in (1, 2)]
    for step, write in enumerate(writes, 1):
        writer.make_room()
        writer.submit(step, write)
        assert writes[0].begun.wait(LONG_SECS)
    assert (log, writer.last_step) == ([], None)
    for write in writes:
        write.may_end.set()
    writer.close()
    assert (log, writer.last_step) == ([1, 2], 2)


def test_a_newer_write_takes_the_place_of_the_one_that_waits(caplog):
    log, writer = [], CheckpointWriter()
    writes = [Write(log, step) for step in (1, 2, 3, 4)]
    for step, write in enumerate(writes, 1):
        writer.make_room(instead_of="mine")
        writer.submit(step, write, "mine")
        assert writes[0].begun.wait(LONG_SECS)
    for write in writes:
        write.may_end.set()
    writer.close()
    assert (log, writer.last_step) == ([1, 4], 4)
    assert caplog.messages == [
        f"Skipping the checkpoint of step {step}: the one before is still being "
        "written, and a newer one is due."
        for step in (2, 3)
    ]


@pytest.mark.parametrize(
    ("waiting", "instead_of"), [(None, None), (None, "mine"), ("mine", "another's")]
)
def test_where_none_may_be_dropped_the_caller_waits_for_room(
    waiting, instead_of, waits
):
    log, writer = [], CheckpointWriter(named_every_secs=0.01)
    writes = [Write(log, step) for step in (1, 2, 3)]
    for step in (1, 2):
        writer.submit(step, writes[step - 1], waiting)
        assert writes[0].begun.wait(LONG_SECS)
    has_room = in_thread(lambda: writer.make_room(instead_of))
    assert waits.wait(LONG_SECS)
    assert not has_room.is_set()
    writes[0].may_end.set()
    assert writes[1].begun.wait(LONG_SECS)
    assert has_room.wait(LONG_SECS)
    writer.submit(3, writes[2])
    writes[1].may_end.set()
    writes[2].may_end.set()
    writer.close()
    assert log == [1, 2, 3]


def test_an_error_is_logged_when_it_happens_and_can_be_left_for_the_end(caplog):
    log, writer = [], CheckpointWriter()
    bad, good = Write(log, 1, error=CheckpointError("the disk")), Write(log, 2)
    for write in (bad, good):
        write.may_end.set()
    writer.submit(1, bad)
    writer.wait()
    assert caplog.messages == ["the disk"]
    writer.make_room()
    writer.submit(2, good)
    with pytest.raises(CheckpointError, match="the disk"):
        writer.close()
    assert (log, writer.last_step) == ([2], 2)


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


def test_no_thread_is_left_when_nothing_is_to_be_done():
    writer, log = CheckpointWriter(), []
    for step in range(50):
        write = Write(log, step)
        write.may_end.set()
        writer.make_room()
        writer.submit(step, write)
    writer.close()
    assert log == list(range(50))
    for thread in threading.enumerate():
        if thread.name == "checkpoint writer":
            thread.join(LONG_SECS)  # its last line is after what `close` waits for
            assert not thread.is_alive()


def test_what_was_written_is_let_go_of():
    class Values:
        pass

    import weakref

    values = Values()
    seen = weakref.ref(values)
    writer = CheckpointWriter()
    writer.submit(1, lambda values=values: None)
    del values
    writer.close()
    assert seen() is None


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
    in_thread(lambda: writer.submit(1, write)).wait(LONG_SECS)
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


@pytest.mark.parametrize(
    "save_path, state_file, meets",
    [
        ("folder/model.ckpt", None, True),
        (b"folder/model.ckpt-7", "checkpoint_other", True),
        ("folder/other.ckpt", None, True),
        ("folder/other.ckpt", "checkpoint", True),
        ("folder/other.ckpt", "checkpoint_other", False),
        ("elsewhere/model.ckpt", None, False),
    ],
)
def test_a_saver_meets_what_has_its_files_or_its_state_file(
    save_path, state_file, meets
):
    writer = CheckpointWriter()
    writer.submit(7, lambda: None, save_path=os.path.abspath("folder/model.ckpt"))
    writer.close()
    assert writer.may_meet(save_path, state_file) == meets
