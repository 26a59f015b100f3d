"""Which lines of the tasks are above the rows of a terminal, by their level."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.terminal import levels


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("INFO:tensorflow:loss = 0.5, step = 1", "info"),
        ("WARNING:estimator_runtime.loop:slow", "warning"),
        ("CRITICAL:root:out", "error"),
        ("I1125 00:17:00.123456 140206 estimator.py:83] Using config", "info"),
        ("E0000 00:00:1795315669.930892    6103 cuda_platform.cc:52] failed", "error"),
        ("2026-11-22 02:48:12.416359: W tensorflow/core/x.cc:9] rare", "warning"),
        ("loss 0.5", None),
        ("Traceback (most recent call last):", None),
        ("I think so", None),
    ],
)
def test_the_level_of_a_line_is_read_from_its_start(line, level):
    assert levels.level_of(line) == level


def test_a_message_of_several_lines_is_hidden_to_its_end():
    lines = [
        "INFO:tensorflow:An error was raised. Error: From /job:ps/replica:0/task:0:",
        "\tSocket closed",
        "\t",
        "printed",
        "\tprinted",
        "INFO:tensorflow:Done.",
        "WARNING:tensorflow:shown",
        "\tand its second line",
    ]
    hidden = levels.LevelFilter("warning")
    assert [line for line in lines if not hidden.hides(line)] == [
        "printed",
        "\tprinted",
        "WARNING:tensorflow:shown",
        "\tand its second line",
    ]


def test_a_traceback_that_a_hidden_line_interrupts_is_shown_whole():
    hidden = levels.LevelFilter("warning")
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1', "    f()"]
    shown = [each for line in lines for each in (line, "INFO:a:b") if not hidden.hides(each)]  # fmt: skip
    assert shown == lines


def test_a_hidden_line_with_a_stray_bracket_hides_no_line_after_it():
    hidden = levels.LevelFilter("warning")
    for stray in ("INFO:root:connecting :(", "INFO:root:step [10/100", "INFO:a:b {"):
        assert hidden.hides(stray)
        assert not hidden.hides("Traceback (most recent call last):")
        assert not hidden.hides('  File "train.py", line 1, in <module>')
        assert not hidden.hides("RuntimeError: broken")
        assert hidden.hides(stray) and not hidden.hides("hello")


def test_a_level_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="ESTIMATOR_RUNTIME_LOG_LEVEL is 'loud'"):
        levels.in_environ({levels.VARIABLE: "loud"})
