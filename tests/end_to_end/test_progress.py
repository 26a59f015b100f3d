"""`--progress` as a user sees it: the example in a terminal."""

import fcntl
import os
import pathlib
import re
import struct
import subprocess
import sys
import termios

SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "digits.py"


def run_in_terminal(*arguments, cwd):
    """Give (exit status, all that a terminal was sent on standard error)."""
    inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 25, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "estimator_runtime", "run", *map(str, arguments)],
        cwd=cwd,
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the last one who could write has gone
            break
        if not part:
            break
        sent += part
    os.close(ours)
    return process.wait(60), sent.decode(errors="replace")


def test_a_terminal_shows_a_bar_to_the_last_step(tmp_path):
    flags = ("--model_dir", "model", "--max_steps", 400)
    status, sent = run_in_terminal(SCRIPT, *flags, cwd=tmp_path)
    assert status == 0, sent
    assert re.search(r"100%\|.*\| 400/400 \[.*, loss=\d\.\d+.*\]", sent), sent


def test_none_shows_nothing(tmp_path):
    flags = ("--model_dir", "model", "--max_steps", 100)
    status, sent = run_in_terminal("--progress", "none", SCRIPT, *flags, cwd=tmp_path)
    assert status == 0 and "100/100" not in sent
