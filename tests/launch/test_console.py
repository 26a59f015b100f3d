"""What a person sees of a job."""

import io
import os
import threading

import pytest

from estimator_runtime.launch.console import Console


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_each_line_has_the_name_of_its_task_in_a_column():
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err)
    console.introduce(["chief", "worker 0"])
    console.write("chief", "one", is_error=False)
    console.write("worker 0", "two")
    console.say("three")
    console.status("not for a file")
    assert out.getvalue() == "chief    | one\n"
    assert err.getvalue() == "worker 0 | two\nlauncher | three\n"


def test_a_terminal_shows_a_colour_for_each_task_and_a_status_line_below():
    screen = _Terminal()
    console = Console(screen, screen)
    console.introduce(["chief"])
    console.status("step 3")
    console.write("chief", "loss")
    assert screen.getvalue() == (
        "\r\x1b[Kstep 3\r\x1b[K\x1b[36mchief    | \x1b[0mloss\nstep 3"
    )


def test_a_reader_who_has_left_does_not_stop_the_job():
    out = io.StringIO()
    console = Console(out, out)
    out.close()
    console.say("nobody reads this")


@pytest.fixture
def pipe():
    """Give a file to read from, and the file to write to, both of a pipe."""
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


def test_a_reader_who_pauses_does_not_stop_the_job_and_is_told_of_as_behind(pipe):
    reading, writing = pipe
    console = Console(io.StringIO(), writing)
    assert not console.is_behind()
    assert _fill(console, 2000)
    assert console.is_behind()
    read = [reading.readline() for _ in range(2000)]
    assert read == [f"launcher | {n} {'x' * 1000}\n" for n in range(2000)]
    console.flush()
    assert not console.is_behind()


def test_what_nobody_reads_is_left_out_in_the_end_and_that_is_said(pipe):
    reading, writing = pipe
    console = Console(io.StringIO(), writing)
    assert _fill(console, 20_000)
    console.flush(timeout_secs=0.01)
    for line in reading:
        if not line.startswith("launcher | "):
            break
    assert line == "... lines are left out here, which nobody has read in time ...\n"
    console.say("now")
    assert reading.readline() == "launcher | now\n"


def test_the_order_stays_where_both_streams_are_one_file(tmp_path):
    with open(tmp_path / "out", "w") as out, open(tmp_path / "out", "a") as err:
        console = Console(out, err)
        for n in range(100):
            console.write("chief", str(n), is_error=bool(n % 2))
        console.flush()
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines == [f"chief    | {n}" for n in range(100)]
