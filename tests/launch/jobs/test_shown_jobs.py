"""What a person sees of real jobs: a quiet log, and rows below it on a terminal."""

import fcntl
import json
import os
import pathlib
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

_PROGRAM = pathlib.Path(__file__).parents[1] / "programs" / "train.py"
_PS = ("--workers", "1", "--ps", "1")
_DEPRECATED = re.compile(
    r"^(\w+)[ \d]*\| WARNING:tensorflow:From .*is deprecated", re.MULTILINE
)


@pytest.mark.parametrize("parent", ["warm", "cold"])
def test_the_log_of_a_job_is_quiet_and_verbose_brings_back_all(
    launch, tmp_path, parent
):
    options = (*_PS, *(["--cold"] if parent == "cold" else []))
    quiet = launch(*options, _PROGRAM, "--model_dir", "quiet")
    assert quiet.end() == 0, quiet.text
    assert not _DEPRECATED.findall(quiet.text)
    (said,) = re.findall(r"^launcher *\| left out (.*)$", quiet.text, re.MULTILINE)
    assert re.fullmatch(
        r"\d+ deprecation warnings of TensorFlow's; --verbose shows them", said
    )
    everything = {"ESTIMATOR_RUNTIME_VERBOSE": "1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    verbose = launch(*options, _PROGRAM, "--model_dir", "verbose", **everything)
    assert verbose.end() == 0, verbose.text
    tasks = set(_DEPRECATED.findall(verbose.text))
    assert {"chief", "worker"} <= tasks
    assert "This TensorFlow binary is optimized" in verbose.text
    assert "left out" not in verbose.text


def test_what_keeps_tensorflow_from_being_imported_is_shown_before_the_verdict(
    launch, tmp_path
):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tensorflow.py").write_text("raise RuntimeError('it is broken')\n")
    path = os.pathsep.join(filter(None, [str(broken), os.environ.get("PYTHONPATH")]))
    job = launch("--ps", "1", _PROGRAM, PYTHONPATH=path)
    assert job.end() == 1
    first, *_, error, verdict = job.text.splitlines()
    assert re.fullmatch(r"launcher *\| importing TensorFlow, once for all tasks", first)
    assert re.fullmatch(r"launcher *\| RuntimeError: it is broken", error), job.text
    assert verdict == (
        "estimator-runtime: error: the process that starts the tasks ended before it "
        "could; what it wrote is above"
    )


class InTerminal:
    """A job whose output goes to a terminal of 100 columns."""

    def __init__(self, arguments, cwd):
        inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 25, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "estimator_runtime", "run", *map(str, arguments)],
            cwd=cwd,
            env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.sent = b""

    @property
    def text(self):
        """What it was sent, without colours."""
        return re.sub(r"\x1b\[\d*m", "", self.sent.decode(errors="replace"))

    def read_until(self, pattern=None, timeout_secs=90):
        """Read until `pattern` was sent, or, if it is None, to the end."""
        deadline = time.monotonic() + timeout_secs
        while pattern is None or not re.search(pattern, self.text):
            ready, _, _ = select.select(
                [self._ours], [], [], max(0, deadline - time.monotonic())
            )
            assert ready, f"no {pattern!r} in:\n{self.text}"
            try:
                part = os.read(self._ours, 65536)
            except OSError:  # the last one who could write has gone
                part = b""
            if not part:
                assert pattern is None, f"ended without {pattern!r}:\n{self.text}"
                return self.process.wait(60)
            self.sent += part
        return None

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def in_terminal(tmp_path):
    """Return a function that starts a job in a terminal."""
    started = []

    def start(*arguments):
        started.append(InTerminal(arguments, tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_terminal_shows_a_row_for_each_task_and_the_bar_of_the_job(
    in_terminal, tmp_path
):
    job = in_terminal(*_PS, "--evaluator", _PROGRAM, "--gate", "40:go")
    # Both wait at the gate, so what is known by then is shown however long it takes. Who
    # comes there with its first step has reported none: the other has taken them all.
    row = r"\r?\n"
    # Long before TensorFlow is imported.
    job.read_until("importing TensorFlow, once for all tasks")
    first = re.findall(r"^(\w[\w ]*?) +\| (.*?)\r?$", job.text, re.MULTILINE)
    assert first[:4] == [
        (name, "starting") for name in ("ps 0", "chief", "worker 0", "evaluator")
    ]
    job.read_until(
        rf"ps 0      \| running, pid \d+{row}"
        rf"chief     \| (?:training|step \d+).*{row}"
        rf"worker 0  \| (?:training|step \d+).*{row}"
        rf"evaluator \| running, pid \d+{row}"
        r"total     \| +\d+% \|.*\| step \d\d of 100 \| checkpoint \d+ .*elapsed"
    )
    (tmp_path / "go").touch()
    assert job.read_until() == 0, job.text
    # The last picture stays, above the last lines.
    last = job.text.rpartition("\x1b[J")[2].replace("\r", "")
    assert re.match(
        r"ps 0      \| done\n"
        r"chief     \| done, step \d+, loss \S+\n"
        r"worker 0  \| done, step \d+, loss \S+\n"
        r"evaluator \| done, evaluated step 1\d\d: loss \S+\n"
        r"total     \| 100% \|.*\| step 1\d\d of 100 \| checkpoint 1\d\d .*elapsed\n",
        last,
    ), job.text


def test_ps_lists_the_tasks_of_a_job_until_it_ends(launch, run_python, tmp_path):
    def ps(*options):
        done = run_python("-m", "estimator_runtime", "ps", *options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    options = (*_PS, "--metrics", "m.jsonl")
    job = launch(*options, _PROGRAM, "--gate", "40:go", "--model_dir", "model")
    started = {name: job.wait_for(rf"\| {name} started, pid (\d+)(?:,|$)")[1]
               for name in ("chief", "worker 0", "ps 0")}  # fmt: skip
    # Both trainers wait at the gate then, which each reaches at about its 40th step.
    deadline = time.monotonic() + 90
    step, last_step = 0, None
    while step < 30 or last_step is None:  # the chief may say later where it ends
        assert time.monotonic() < deadline, job.text
        # There may be jobs of other tests.
        found = {job["pid"]: job for job in json.loads(ps("--json"))}
        listed = found[job.process.pid]
        step, last_step = listed["step"], listed["last_step"]
    tasks = {task["name"]: task for task in listed["tasks"]}
    assert (listed["pid"], listed["last_step"]) == (job.process.pid, 100)
    assert listed["model_dir"] == str(tmp_path / "model")
    assert {name: str(task["pid"]) for name, task in tasks.items()} == started
    logs = tmp_path / "model" / "logs"
    assert tasks["worker 0"]["log"] == str(logs / "worker-0.log")
    listed = {text.split()[1]: text for text in ps().strip().split("\n\n")}
    first, _, head, *rows = listed[str(job.process.pid)].splitlines()
    assert first.startswith(f"job {job.process.pid} (local): {_PROGRAM}")
    assert head.split() == ["task", "pid", "step", "steps/s", "restarts", "state", "log"]  # fmt: skip
    assert [row.split()[0] for row in rows] == ["ps", "chief", "worker"]
    (tmp_path / "go").touch()
    assert job.end() == 0, job.text
    assert f"job {job.process.pid} (local)" not in ps()
    lines = list(map(json.loads, (tmp_path / "m.jsonl").read_text().splitlines()))
    last = {line["event"]: line["step"] for line in lines}
    # A worker may take a step more than asked for.
    assert last.keys() == {"checkpoint", "progress"}
    assert last["checkpoint"] == last["progress"] >= 100
    # Each run begins with a line in the log, too.
    line = f"estimator-runtime: chief started, pid {started['chief']}\n"
    assert line in (logs / "chief-0.log").read_text()


def test_every_line_of_a_job_that_fails_may_be_an_object_of_json(launch):
    # The script refuses the option, which belongs before it.
    options = ("--log-format", "json", "--ps", "1", "--max-restarts", "0")
    job = launch(*options, _PROGRAM, "--grace", "5")
    assert job.end() == 1, job.text
    lines = list(map(json.loads, job.text.splitlines()))
    assert {"launcher", "chief"} <= {line["task"] for line in lines}
