"""Jobs as a user starts them, and the promise that nothing of them is left behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

_PROGRAM = str(Path(__file__).parent / "programs" / "train.py")

# For what takes seconds where nothing else runs, and must not fail where much does.
PATIENCE_SECS = 150.0
_MARKER = "ESTIMATOR_RUNTIME_TEST"
# Killed processes go when the disk and the other tests let them: this is about those
# that would stay.
_GONE_WITHIN_SECS = 30.0


class Launch:
    """`estimator-runtime run` in a process of its own, and all it has written."""

    def __init__(self, arguments, cwd, marker, within, stdout, environ):
        inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
        self.output = cwd / f"launcher-{uuid.uuid4().hex[:8]}.out"
        self.marker = marker
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(*within, sys.executable, "-m", "estimator_runtime", "run"),
                    *map(str, arguments),
                ],
                cwd=cwd,
                env={
                    **inherited,
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    _MARKER: marker,
                    **environ,
                },
                stdin=subprocess.DEVNULL,
                stdout=stdout or output,
                stderr=subprocess.STDOUT,
                # As from a terminal: what a shell runs in the background ignores it.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def text(self):
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern, timeout_secs=PATIENCE_SECS, count=1):
        """Wait until `pattern` was written `count` times; give the last match."""
        deadline = time.monotonic() + timeout_secs
        while True:
            over = self.process.poll() is not None
            found = list(re.finditer(pattern, self.text, re.MULTILINE))
            if len(found) >= count:
                return found[count - 1]
            assert not over, f"ended without {pattern!r}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            time.sleep(0.05)

    def end(self, timeout_secs=PATIENCE_SECS):
        """Wait for the end; give the exit status."""
        try:
            return self.process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout_secs} s:\n{self.text}")

    def children(self):
        """Return the pids of all processes of the job but the launcher's own."""
        return processes_of(self.marker) - {self.process.pid}


def processes_of(marker):
    """Return the pids of the processes that have the marker in their environment."""
    wanted = f"{_MARKER}={marker}".encode()
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ:
                if wanted in environ.read().split(b"\0"):
                    found.add(int(entry))
        except OSError:
            continue
    return found


def wait_until_gone(marker):
    """Return the pids that are still there after a while."""
    deadline = time.monotonic() + _GONE_WITHIN_SECS
    while True:
        left = processes_of(marker)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


@pytest.fixture
def launch(tmp_path):
    """Return a function that starts a job; at the end none of its processes is left.

    What is given as `within` is a command that runs the rest of its arguments, and as
    `stdout` a file for all that the launcher writes.
    """
    marker = uuid.uuid4().hex
    started = []

    def start(*arguments, within=(), stdout=None, **environ):
        started.append(Launch(arguments, tmp_path, marker, within, stdout, environ))
        return started[-1]

    yield start
    running = [each for each in started if each.process.poll() is None]
    left = processes_of(marker) if running else wait_until_gone(marker)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for each in started:
        each.process.wait()
    assert not running, f"the test left a launcher running:\n{running[0].text}"
    assert not left, "processes were left behind"


class Task:
    """A process with a TF_CONFIG, as another scheduler starts it."""

    def __init__(self, fork, folder, cluster, task_type, arguments, within, environ):
        inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
        config = {"cluster": cluster, "task": {"type": task_type, "index": 0}}
        self.output = folder / f"{task_type}-{len(list(folder.iterdir()))}.out"
        self.output.touch()
        command = ["estimator_runtime", "run", _PROGRAM, *arguments]
        environ = {
            **inherited,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_CONFIG": json.dumps(config),
            "ESTIMATOR_RUNTIME_START_DELAY_SECS": "0",
            "ESTIMATOR_RUNTIME_RECOVERY_WAIT_SECS": "0.5",
            **environ,
        }
        if not within:
            self.process = fork(command, folder, environ, self.output)
            return
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", *command],
                cwd=folder,
                env=environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                # As from a terminal: what a shell runs in the background ignores it.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def text(self):
        return self.output.read_text(errors="replace")

    @property
    def steps(self):
        return [int(step) for step in re.findall(r"^step (\d+)$", self.text, re.M)]

    def wait_until_it_listens(self, address):
        host, port = address.split(":")
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            try:
                return socket.create_connection((host, int(port)), timeout=5).close()
            except OSError:
                assert self.process.poll() is None, self.text
                assert time.monotonic() < deadline, self.text
                time.sleep(0.1)

    def wait_for(self, pattern, timeout_secs=PATIENCE_SECS):
        """Wait until a line matches; give the match."""
        deadline = time.monotonic() + timeout_secs
        while True:
            over = self.process.poll() is not None
            found = re.search(pattern, self.text, re.MULTILINE)
            if found:
                return found
            assert not over, f"ended without {pattern!r}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            time.sleep(0.05)

    def wait_for_step(self, step):
        deadline = time.monotonic() + PATIENCE_SECS
        while max(self.steps, default=-1) < step:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    def end(self, timeout_secs=PATIENCE_SECS):
        try:
            return self.process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running:\n{self.text}")


@pytest.fixture
def start(fork, tmp_path):
    """Return a function that starts a task, of (cluster, task type, arguments).

    What is given as `within` is a command that runs the rest of its arguments.
    """
    started = []

    def start(cluster, task_type, *arguments, within=(), **environ):
        task = Task(fork, tmp_path, cluster, task_type, arguments, within, environ)
        started.append(task)
        return task

    yield start
    for task in started:
        task.process.kill()
        task.process.wait()


@pytest.fixture
def cluster_of(free_addresses):
    """Return a function that gives a cluster with one task of each type."""

    def cluster_of(*task_types):
        addresses = free_addresses(len(task_types))
        return {name: [a] for name, a in zip(task_types, addresses, strict=True)}

    return cluster_of


@pytest.fixture
def saved_step(tmp_path):
    """Return a function that reads the step of the newest checkpoint in `model`."""
    import tensorflow as tf

    def saved_step():
        path = tf.train.latest_checkpoint(str(tmp_path / "model"))
        return int(tf.train.load_checkpoint(path).get_tensor("global_step"))

    return saved_step


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoints of the steps 10 and 20."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("model")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.Variable(1.0, name="weight").initializer)
        saver = tf.compat.v1.train.Saver(save_relative_paths=True)
        for step in (10, 20):
            saver.save(session, str(folder / "model.ckpt"), step)
    return folder
