"""What people see of a training's progress, with the time and the stream passed in."""

import contextlib
import io
import logging
import os
import subprocess
import sys

import pytest

from estimator_runtime.output.progress_bar import Bar, Progress, ProgressLines, choose


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "mode, stream, expected",
    [
        ("auto", Terminal(), Bar),
        ("auto", io.StringIO(), ProgressLines),
        ("bar", io.StringIO(), Bar),
        ("plain", Terminal(), ProgressLines),
        ("none", Terminal(), None),
    ],
)
def test_auto_is_a_bar_on_a_terminal_and_lines_elsewhere(mode, stream, expected):
    assert choose(mode, stream) is expected


class Tee:
    """What programs put in the place of standard error to keep a copy."""

    def write(self, text):
        pass

    def flush(self):
        pass


def test_auto_is_lines_where_standard_error_is_not_a_whole_stream(monkeypatch):
    closed = io.StringIO()
    closed.close()
    for stream in (Tee(), closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert choose("auto") is ProgressLines


def test_lines_are_left_out_where_there_is_no_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    clock = Clock()
    shown = ProgressLines(Progress(step=0), clock=clock)
    clock.secs = 10.0
    shown.show(Progress(step=1))


class Clock:
    """Stands still until it is told to go on."""

    secs = 0.0

    def __call__(self):
        return self.secs


def lines(*looks, **known):
    """Return what is written when each of `looks`, (seconds, step), is shown."""
    stream, clock = io.StringIO(), Clock()
    shown = ProgressLines(Progress(step=0, **known), stream, clock)
    for clock.secs, step in looks:
        shown.show(Progress(step=step, **known))
    shown.close()
    return stream.getvalue().splitlines()


def test_a_line_comes_every_ten_seconds_with_the_rate_since_the_one_before():
    looks = [(4, 40), (9, 90), (10, 100), (12, 900), (19, 901), (20, 1100)]
    assert lines(*looks) == ["step 100, 10 steps/s", "step 1100, 100 steps/s"]


def test_a_training_of_seconds_and_one_that_stands_still_write_nothing():
    assert lines((0.5, 1), (9.5, 10_000)) == []
    assert lines((100, 0)) == []


def test_a_line_has_all_that_is_known():
    known = {"last_step": 2000, "loss": 0.123456, "saved_step": 500}
    assert lines((10, 1000), **known) == [
        "step 1000 of 2000, 100 steps/s, loss 0.1235, saved step 500, 0:00:10 left"
    ]
    assert lines((10, 1), last_step=40_000) == [
        "step 1 of 40000, 0.1 steps/s, 111:06:30 left"
    ]


def drawn(*steps, **known):
    stream = io.StringIO()
    bar = Bar(Progress(step=steps[0], **known), stream)
    for step in steps[1:]:
        bar.show(Progress(step=step, **known))
    bar.close()
    # tqdm pads with blanks where the rate had more digits before.
    return stream.getvalue().rpartition("\r")[2].rstrip()


def test_a_bar_has_the_step_the_last_one_the_loss_and_the_checkpoint():
    text = drawn(100, 150, 200, last_step=400, loss=0.25, saved_step=150)
    assert text.startswith(" 50%|") and "| 200/400 [" in text
    assert text.endswith(", loss=0.25, saved=step 150]")


def test_a_terminal_that_says_it_has_no_columns_gets_a_bar_too():
    ours, theirs = os.openpty()  # which has 0
    with open(theirs, "w") as terminal:
        bar = Bar(Progress(step=0, last_step=4), terminal)
        bar.show(Progress(step=4, last_step=4))
        bar.close()
        drawn = b""
        while b"100%|" not in drawn:  # a terminal may give it in parts
            drawn += os.read(ours, 65536)
    os.close(ours)


def test_a_bar_without_a_last_step_counts():
    assert drawn(0, 70).startswith("70step [")


def seen(text):
    """Return the rows that a terminal shows of what was written to it."""
    rows = []
    for line in text.replace("\r\n", "\n").split("\n"):
        row = ""
        for part in line.split("\r"):
            row = part + row[len(part) :]
        rows.append(row.rstrip())
    return [row for row in rows if row]


def test_the_bar_gives_way_to_the_log_whose_handlers_stay_as_they_are(monkeypatch):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger = logging.getLogger("a_program.with_its_handler")
    monkeypatch.setattr(logger, "handlers", [handler])
    bar = Bar(Progress(step=1, last_step=9), stream)
    logger.info("a detail")
    logger.warning("above")
    bar.show(Progress(step=2, last_step=9))
    logger.error("another")
    bar.close()
    *log, last = seen(stream.getvalue())
    assert log == ["WARNING: above", "ERROR: another"]
    assert last.startswith(" 22%|") and "| 2/9 [" in last
    assert handler.filters == []


class Terminating(io.StringIO):
    """Cannot be written any more after some writes."""

    writes_left = 0

    def write(self, text):
        self.writes_left -= 1
        if self.writes_left < 0:
            raise OSError("the terminal is gone")
        return super().write(text)


def test_a_terminal_that_is_gone_blocks_no_bar_of_the_program_and_no_log(monkeypatch):
    stream, log = Terminating(), io.StringIO()
    stream.writes_left = 2
    logger = logging.getLogger("a_program.with_its_handler")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(log)])
    bar = Bar(Progress(step=1, last_step=9), stream)
    with pytest.raises(OSError, match="the terminal is gone"):
        bar.show(Progress(step=3, last_step=9))
    logger.warning("goes on")
    assert log.getvalue() == "goes on\n"
    assert drawn(0, 70).startswith("70step [")
    with contextlib.suppress(OSError):
        bar.close()


_ENDS_WITH_ITS_BAR_UP = """
import logging, os, threading
from estimator_runtime.output.progress_bar import Bar, Progress
logging.basicConfig()
bar = Bar(Progress(step=1, last_step=9))
is_drawing, is_over = threading.Event(), threading.Event()
def draw():
    with bar._bar.get_lock():
        is_drawing.set()
        is_over.wait()
drawing = threading.Thread(target=draw)
drawing.start()
is_drawing.wait()
child = os.fork()
if not child:
    logging.warning("of the child")
    os._exit(0)
os.waitpid(child, 0)
is_over.set()
drawing.join()
logging.warning("of the parent")
raise SystemExit({end})
"""


@pytest.mark.parametrize("end", ["0", "int('no number')"])
def test_a_process_that_ends_with_its_bar_up_has_shown_all_it_logged(end):
    program = _ENDS_WITH_ITS_BAR_UP.format(end=end)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    rows = seen(done.stderr)
    assert rows[0].endswith("WARNING:root:of the child")
    assert rows[1] == "WARNING:root:of the parent"
    failed = "ValueError: invalid literal for int() with base 10: 'no number'"
    assert (done.returncode, failed in rows) == (
        (0, False) if end == "0" else (1, True)
    )
