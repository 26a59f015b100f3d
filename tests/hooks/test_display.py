"""What people see of a training's progress, with the time and the stream passed in."""

import contextlib
import io
import logging
import os
import sys

import pytest

from estimator_runtime.hooks.display import Bar, Lines, Progress, choose


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "mode, stream, expected",
    [
        ("auto", Terminal(), Bar),
        ("auto", io.StringIO(), Lines),
        ("bar", io.StringIO(), Bar),
        ("plain", Terminal(), Lines),
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
        assert choose("auto") is Lines


def test_lines_are_left_out_where_there_is_no_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    clock = Clock()
    shown = Lines(Progress(step=0), clock=clock)
    clock.secs = 10.0
    shown.show(Progress(step=1))


class Clock:
    """Stands still until it is told to go on."""

    secs = 0.0

    def __call__(self):
        return self.secs


def lines(*looks, **known):
    """Give what is written when each of `looks`, (seconds, step), is shown."""
    stream, clock = io.StringIO(), Clock()
    shown = Lines(Progress(step=0, **known), stream, clock)
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
    return stream.getvalue().rpartition("\r")[2].rstrip("\n")


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


def test_log_lines_go_above_the_bar_and_the_log_is_as_before_after_it(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    logger = logging.getLogger("tensorflow")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(stream)])
    before = list(logger.handlers)
    bar = Bar(Progress(step=1, last_step=9), stream)
    logger.warning("above")
    bar.close()
    assert logger.handlers == before
    # What was drawn is wiped away first, and drawn again below.
    assert "\rabove\n" in stream.getvalue().replace(" \r", "\r")


class BelowWarning(logging.Filter):
    def filter(self, record):
        return record.levelno < logging.WARNING


def console_handlers(monkeypatch, *handlers):
    """Let the loggers that a bar looks at have these handlers: the root's, and none."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(handlers))
    monkeypatch.setattr(logging.getLogger("tensorflow"), "handlers", [])
    monkeypatch.setattr(root, "level", logging.DEBUG)


def test_while_a_bar_is_up_each_handler_of_the_log_has_its_level_filter_and_format(
    monkeypatch,
):
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    notes, problems = logging.StreamHandler(out), logging.StreamHandler(err)
    notes.setLevel(logging.INFO)
    notes.addFilter(BelowWarning())
    problems.setLevel(logging.WARNING)
    problems.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    console_handlers(monkeypatch, notes, problems)
    logger = logging.getLogger("a_program")
    bar = Bar(Progress(step=1, last_step=9), err)
    logger.debug("a detail")
    logger.info("a note")
    logger.warning("a warning")
    logger.error("an error")
    bar.close()
    assert out.getvalue().replace("\r", "").strip() == "a note"
    shown = [part.strip() for part in err.getvalue().replace("\r", "\n").splitlines()]
    assert [part for part in shown if part and "1/9" not in part] == [
        "WARNING: a warning",
        "ERROR: an error",
    ]
    assert logging.getLogger().handlers == [notes, problems]
    assert (notes.stream, problems.stream) == (out, err)


def test_a_stream_that_the_program_gives_a_handler_while_a_bar_is_up_stays(monkeypatch):
    err, file = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    handler = logging.StreamHandler(err)
    console_handlers(monkeypatch, handler)
    bar = Bar(Progress(step=1, last_step=9), err)
    handler.setStream(file)
    bar.close()
    assert handler.stream is file


class Terminating(io.StringIO):
    """Cannot be written any more after some writes."""

    writes_left = 0

    def write(self, text):
        self.writes_left -= 1
        if self.writes_left < 0:
            raise OSError("the terminal is gone")
        return super().write(text)


@pytest.mark.parametrize("writes", [0, 2])
def test_a_terminal_that_goes_leaves_the_log_the_stream_it_had(monkeypatch, writes):
    err = Terminating()
    err.writes_left = writes
    monkeypatch.setattr(sys, "stderr", err)
    handler = logging.StreamHandler(err)
    console_handlers(monkeypatch, handler)
    with pytest.raises(OSError, match="the terminal is gone"):
        with contextlib.closing(Bar(Progress(step=1, last_step=9), err)) as bar:
            bar.show(Progress(step=2, last_step=9))
            bar.show(Progress(step=3, last_step=9))
    assert logging.getLogger().handlers == [handler]
    assert handler.stream is err
