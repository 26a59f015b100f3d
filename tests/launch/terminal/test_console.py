"""What a person sees of a job."""

import io
import json
import os
import re
import threading

import pytest

from estimator_runtime.launch.terminal.console import Console


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def _seen(text):
    """Return the rows that a terminal shows after it was sent `text`."""
    rows, at = [""], 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            at += 1
            rows += [""] * (at + 1 - len(rows))
            column = 0
        elif part == "\r":
            column = 0
        elif part.startswith("\x1b"):
            number, kind = int(part[2:-1] or 0), part[-1]
            if kind == "A":
                assert number <= at, "above the first row"
                at -= number
            elif kind == "J":
                rows[at:] = [rows[at][:column]]
            elif kind == "K":
                rows[at] = rows[at][:column]
            else:
                assert kind == "m", part
        else:
            column = 0 if not rows[at] else column
            rows[at] = rows[at][:column] + part + rows[at][column + len(part) :]
            column += len(part)
    return rows


def test_each_line_has_the_name_of_its_task_in_a_column():
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err)
    console.introduce(["chief", "worker 0"])
    console.write("chief", "one", is_error=False)
    console.write("worker 0", "two")
    console.say("three")
    console.status([("", "not for a file")])
    console.flush()
    assert out.getvalue() == "chief    | one\n"
    assert err.getvalue() == "worker 0 | two\nlauncher | three\n"


def test_lines_may_be_objects_of_json_without_rows_between_them():
    out, err = _Terminal(), _Terminal()
    console = Console(out, err, as_json=True, clock=lambda: 12.5)
    console.introduce(["chief"])
    console.status([("chief", "step 3")])
    console.write("chief", "one", is_error=False)
    console.write("chief", "WARNING:tensorflow:\x1b[1mtwo")
    console.say("three")
    console.flush()
    texts = [*out.getvalue().splitlines(), *err.getvalue().splitlines()]
    assert [list(json.loads(text).values()) for text in texts] == [
        [12.5, "chief", "info", "one"],
        [12.5, "chief", "warning", "WARNING:tensorflow:\x1b[1mtwo"],
        [12.5, "launcher", "info", "three"],
    ]
    assert list(json.loads(texts[0])) == ["time", "task", "level", "message"]


def test_a_terminal_that_cannot_erase_gets_no_rows(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    screen = _Terminal()
    console = Console(screen, screen)
    console.introduce(["chief"])
    console.status([("", "step 3")])
    console.write("chief", "loss")
    console.flush()
    assert screen.getvalue() == "chief    | loss\n"


def test_lines_go_above_the_rows_which_stay_below_and_change_in_place():
    screen = _Terminal()
    console = Console(screen, screen)
    console.introduce(["chief", "worker 0"])
    console.status([("chief", "step 1"), ("worker 0", "step 2"), ("total", "2/9")])
    console.write("chief", "loss = 0.5")
    console.write("worker 0", "printed", is_error=False)
    console.status([("chief", "step 3"), ("worker 0", "done"), ("total", "3/9")])
    console.say("restarting it")
    console.flush()
    assert _seen(screen.getvalue()) == [
        "chief    | loss = 0.5",
        "worker 0 | printed",
        "launcher | restarting it",
        "chief    | step 3",
        "worker 0 | done",
        "total    | 3/9",
    ]
    console.status([])
    console.say("the end")
    console.flush()
    assert _seen(screen.getvalue())[2:] == [
        "launcher | restarting it",
        "launcher | the end",
        "",
    ]


def _in_a_terminal_of(columns, lines, monkeypatch):
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: (columns, lines))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    screen = _Terminal()
    return screen, Console(screen, screen)


def test_rows_are_cut_where_the_terminal_ends_with_room_for_a_ctrl_c(monkeypatch):
    screen, console = _in_a_terminal_of(22, 10, monkeypatch)
    assert console.columns == 22 - 3 - len("launcher | ")
    console.status([("chief", "step 1234567890"), ("", "x" * 30)])
    console.flush()
    assert _seen(screen.getvalue()) == ["chief    | step 123", "x" * 19]


def test_threads_may_write_at_once():
    screen = _Terminal()
    console = Console(screen, screen)
    start = threading.Barrier(3)

    def write(name):
        start.wait(10)
        for _ in range(200):
            console.write(name, "line")

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    start.wait(10)
    for n in range(200):
        console.status([("total", str(n)), ("total", "end")])
    for thread in threads:
        thread.join(10)
    console.status([])
    console.flush()
    lines = _seen(screen.getvalue())
    assert sorted(lines) == ["", *["a        | line"] * 200, *["b        | line"] * 200]


def test_a_reader_who_has_left_does_not_stop_the_job():
    out = io.StringIO()
    console = Console(out, out)
    out.close()
    console.say("nobody reads this")
    console.flush()


@pytest.fixture
def pipe():
    """Return a file to read from, and the file to write to, both of a pipe."""
    reader, writer = os.pipe()
    with open(reader) as reading, open(writer, "w") as writing:
        yield reading, writing


def _fill(console, lines):
    """Write so many lines beside the test, which must not wait for their reader."""
    thread = threading.Thread(
        target=lambda: [console.say(f"{n} {'x' * 1000}") for n in range(lines)],
        daemon=True,
    )
    thread.start()
    thread.join(30)
    return not thread.is_alive()


def test_a_reader_who_pauses_does_not_stop_the_job(pipe):
    reading, writing = pipe
    console = Console(io.StringIO(), writing)
    assert _fill(console, 2000)
    read = [reading.readline() for _ in range(2000)]
    assert read == [f"launcher | {n} {'x' * 1000}\n" for n in range(2000)]
    console.flush()


def test_what_nobody_reads_in_time_is_left_out_and_that_is_said(pipe):
    reading, writing = pipe
    console = Console(io.StringIO(), writing)
    assert _fill(console, 30_000)
    for number in range(20_000):
        assert reading.readline().startswith(f"launcher | {number} ")
    console.say("now")
    *_, before, last = iter(reading.readline, "launcher | now\n")
    assert last == "... lines left out here: they were not read in time ...\n"
    assert before.startswith("launcher | ")


def test_the_last_words_are_written_where_the_lines_before_were_not_read_in_time(pipe):
    reading, writing = pipe
    console = Console(io.StringIO(), writing)
    assert _fill(console, 30_000)
    console.flush(timeout_secs=0.01)
    ending = threading.Thread(target=console.conclude, args=("the end", False))
    ending.start()
    *lines, last = iter(reading.readline, "estimator-runtime: the end\n")
    assert last == "... lines left out here: they were not read in time ...\n"
    assert len(lines) < 20_000
    ending.join(10)
    assert not ending.is_alive()


def test_the_last_words_are_the_last(tmp_path):
    with open(tmp_path / "out", "w") as out, open(tmp_path / "out", "a") as err:
        console = Console(out, err)
        for number in range(1000):
            console.say(f"line {number}")
        console.conclude("the end", is_failure=False)
    lines = (tmp_path / "out").read_text().splitlines()
    assert len(lines) == 1001
    assert lines[-1] == "estimator-runtime: the end"
