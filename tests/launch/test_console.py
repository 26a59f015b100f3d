"""What a person sees of a job."""

import io

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
