"""What people see of a training's progress, with the time and the stream passed in."""

import io
import logging
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
    assert lines((10, 1), (20, 1001), **known)[1:] == [
        "step 1001 of 2000, 100 steps/s, loss 0.1235, saved step 500, 0:00:10 left"
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
    without = logging.getLogger("a_program.without_a_handler")
    monkeypatch.setattr(without, "propagate", False)
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(stream))
    bar = Bar(Progress(step=1, last_step=9), stream)
    logger.info("a detail")
    logger.warning("above")
    bar.show(Progress(step=2, last_step=9))
    logger.error("another")
    bar.show(Progress(step=2, last_step=9))
    without.error("a third")
    bar.close()
    *log, last = seen(stream.getvalue())
    assert log == ["WARNING: above", "ERROR: another", "a third"]
    assert last.startswith(" 22%|") and "| 2/9 [" in last
    assert handler.filters == []
