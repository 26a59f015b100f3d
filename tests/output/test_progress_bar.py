"""What people see of a training's progress, with the time and the stream passed in."""

import contextlib
import io
import logging
import os
import subprocess
import sys
import threading

import pytest

from estimator_runtime.output.progress_bar import Bar, Progress, ProgressLines, choose


def put(monkeypatch, **streams):
    """Put streams in the place of `sys.stdout` or `sys.stderr`."""
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)


def handle(monkeypatch, logger, *handlers):
    """Set the handlers of a logger until the end of the test."""
    monkeypatch.setattr(logger, "handlers", list(handlers))


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
        put(monkeypatch, stderr=stream)
        assert choose("auto") is ProgressLines


def test_lines_are_left_out_where_there_is_no_standard_error(monkeypatch):
    put(monkeypatch, stderr=None)
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
    assert lines((10, 1), (20, 1001), **known)[1:] == [
        "step 1001 of 2000, 100 steps/s, loss 0.1235, saved step 500, 0:00:10 left"
    ]


def test_the_first_line_has_no_time_left_because_the_start_is_in_its_rate():
    assert lines((10, 1), last_step=40_000) == ["step 1 of 40000, 0.1 steps/s"]


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


def test_log_lines_go_above_the_bar_and_the_log_is_as_before_after_it(monkeypatch):
    stream = io.StringIO()
    put(monkeypatch, stderr=stream)
    logger = logging.getLogger("tensorflow")
    handle(monkeypatch, logger, logging.StreamHandler(stream))
    before = list(logger.handlers)
    bar = Bar(Progress(step=1, last_step=9), stream)
    logger.warning("above")
    bar.close()
    assert logger.handlers == before
    # What was drawn is wiped away first, and drawn again below.
    assert "\rabove\n" in stream.getvalue().replace(" \r", "\r")


def test_a_handler_that_any_logger_had_before_the_bar_writes_above_it(monkeypatch):
    text = console(monkeypatch)
    logger = logging.getLogger("a_program.with_its_handler")
    handler = logging.StreamHandler()
    handle(monkeypatch, logger, handler)
    monkeypatch.setattr(logger, "propagate", False)
    with bar():
        logger.warning("warned")
    assert without_bar(text.getvalue()) == ["warned"]
    assert handler.stream is sys.stderr


class BelowWarning(logging.Filter):
    def filter(self, record):
        return record.levelno < logging.WARNING


def console_handlers(monkeypatch, *handlers):
    """Set the handlers of the loggers that a bar looks at: the root's, and none."""
    root = logging.getLogger()
    handle(monkeypatch, root, *handlers)
    handle(monkeypatch, logging.getLogger("tensorflow"))
    monkeypatch.setattr(root, "level", logging.DEBUG)


def test_while_a_bar_is_up_each_handler_of_the_log_has_its_level_filter_and_format(
    monkeypatch,
):
    out, err = io.StringIO(), io.StringIO()
    put(monkeypatch, stdout=out, stderr=err)
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
    put(monkeypatch, stderr=err)
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
    put(monkeypatch, stderr=err)
    handler = logging.StreamHandler(err)
    console_handlers(monkeypatch, handler)
    with pytest.raises(OSError, match="the terminal is gone"):
        with contextlib.closing(Bar(Progress(step=1, last_step=9), err)) as bar:
            bar.show(Progress(step=2, last_step=9))
            bar.show(Progress(step=3, last_step=9))
    assert logging.getLogger().handlers == [handler]
    assert handler.stream is err


def seen(text):
    """Return the rows that a terminal shows of what was written to it."""
    rows = []
    for line in text.replace("\r\n", "\n").split("\n"):
        row = ""
        for part in line.split("\r"):
            row = part + row[len(part) :]
        rows.append(row.rstrip())
    return rows


def without_bar(text):
    """Return the rows above the bar's last one, none of which may have a part of it."""
    rows = [row for row in seen(text) if row]
    bars = [row for row in rows if "/9 [" in row]
    assert len(bars) == 1 and bars[0].startswith(" 11%|") and bars[0].endswith("]")
    return [row for row in rows if row not in bars]


def console(monkeypatch):
    """Make a terminal standard output and error, as two streams; return its text."""
    text = io.StringIO()

    class Stream(Terminal):
        encoding, errors = "ascii", "strict"

        def write(self, part):
            str.encode(part, self.encoding, self.errors)
            return text.write(part)

        def fileno(self):
            return 42

    put(monkeypatch, stdout=Stream(), stderr=Stream())
    handle(monkeypatch, logging.getLogger())
    return text


def bar():
    return contextlib.closing(Bar(Progress(step=1, last_step=9)))


def test_what_the_program_writes_goes_above_the_bar_in_order(monkeypatch):
    text = console(monkeypatch)
    streams = sys.stdout, sys.stderr
    with bar():
        print("printed", 1)
        sys.stderr.write("two\nlines\n")
        sys.stdout.writelines(["of", " many\n"])
        logging.getLogger().warning("logged to the standard error of now")
    assert (sys.stdout, sys.stderr) == streams
    assert type(sys.stdout) is type(sys.stderr) is type(streams[0])
    *rows, logged = without_bar(text.getvalue())
    assert rows == ["printed 1", "two", "lines", "of many"]
    assert logged == "logged to the standard error of now"


def test_the_start_of_a_line_waits_for_its_end_or_that_of_the_bar(monkeypatch):
    text = console(monkeypatch)
    with bar():
        print("half ", end="", flush=True)
        assert "half" not in text.getvalue()
        print("and half\nwaits ", end="")
    print("for the end")
    assert without_bar(text.getvalue()) == ["half and half", "waits for the end"]
    assert seen(text.getvalue())[-2:] == ["waits for the end", ""]


class Copying:
    """A program's own, that keeps a copy of what it passes on."""

    def __init__(self, stream):
        self.stream, self.copy = stream, ""

    def write(self, text):
        self.copy += text
        self.stream.write(text)

    def flush(self):
        pass


def test_a_stream_that_the_program_puts_there_while_a_bar_is_up_stays(
    monkeypatch,
):
    text = console(monkeypatch)
    with bar():
        tee = Copying(sys.stdout)
        put(monkeypatch, stdout=tee)
        print("in the bar's time")
    assert sys.stdout is tee
    print("after it")
    assert tee.copy == "in the bar's time\nafter it\n"
    assert without_bar(text.getvalue()) == ["in the bar's time", "after it"]


def test_what_is_no_terminal_stays_unchanged(monkeypatch):
    text = console(monkeypatch)
    piped = io.StringIO()
    put(monkeypatch, stdout=piped)
    with bar():
        assert sys.stdout is piped
        assert sys.stderr.write("to the terminal\n") == 16
    assert without_bar(text.getvalue()) == ["to the terminal"]
    put(monkeypatch, stderr=piped)
    with bar():
        assert sys.stderr is piped


def test_a_bar_of_the_programs_own_with_tqdm_is_drawn_in_its_own_row(monkeypatch):
    text = console(monkeypatch)
    from tqdm import tqdm

    with bar():
        own = tqdm(total=4, desc="own", file=sys.stderr, ncols=79)
        assert "own:   0%" in text.getvalue()  # did not wait for the end of a line
        own.close()
        tqdm.write("through tqdm")
        print("printed")
    rows = seen(text.getvalue())
    assert "through tqdm" in rows and "printed" in rows


def test_lines_of_many_threads_are_whole_and_all_there(monkeypatch):
    text = console(monkeypatch)

    def write(name):
        for line in range(200):
            sys.stdout.write(f"{name} {line}\n")

    shown = Bar(Progress(step=1, last_step=9))
    with contextlib.closing(shown):
        threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for _ in range(200):
            shown.show(Progress(step=1, last_step=9))
        for thread in threads:
            thread.join()
    rows = without_bar(text.getvalue())
    assert sorted(rows) == sorted(f"{n} {line}" for n in "abc" for line in range(200))


_ENDS_WITH_ITS_BAR_UP = """
import os, sys, threading, warnings
from estimator_runtime.output.progress_bar import Bar, Progress
bar = Bar(Progress(step=1, last_step=9))
warnings.warn("be warned")
print("printed")
sys.stdout.write("the child and ")
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
    print("of the child")
    sys.stdout.write("its rest")
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
is_over.set()
drawing.join()
print("the parent")
sys.stdout.write("the parent's rest")
raise SystemExit({end})
"""


@pytest.mark.parametrize("end", ["0", "int('no number')"])
def test_a_process_that_ends_with_its_bar_up_has_shown_all_it_wrote(end):
    ours, theirs = os.openpty()
    program = _ENDS_WITH_ITS_BAR_UP.format(end=end)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # nobody has it any more
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    status, rows = process.wait(60), [row for row in seen(shown.decode()) if row]
    warned, printed, of_child, together, *rest = rows
    assert warned == "<string>:5: UserWarning: be warned" and printed == "printed"
    # It has no bar that it could wipe away.
    assert of_child.endswith("]of the child") and "its rest" in shown.decode()
    assert together == "the child and the parent"
    assert rest[-1] == "the parent's rest"
    failed = "ValueError: invalid literal for int() with base 10: 'no number'"
    assert (status, failed in rest) == ((0, False) if end == "0" else (1, True))
