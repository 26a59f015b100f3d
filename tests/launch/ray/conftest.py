"""A Ray cluster of three nodes on this machine, and jobs that are started in it."""

import importlib.util
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

_NODES = Path(__file__).parent / "nodes.py"
_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"
_READY_SECS = 90.0


@pytest.fixture(autouse=True, scope="session")
def _ray():
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed; pip install 'estimator-runtime[ray]'")


class RayCluster:
    """Nodes that can be killed and added; gone with this object's process at last."""

    def __init__(self):
        # Short: it is part of the path of sockets.
        self.folder = tempfile.TemporaryDirectory(prefix="er-ray-", dir="/tmp")
        self.errors = open(f"{self.folder.name}/errors", "w+")  # noqa: SIM115
        self.environ = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": self.folder.name,
            # At Ray's default, 15, its jobs starve beside other tests.
            "RAY_worker_niceness": "0",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self.process = subprocess.Popen(
            [sys.executable, _NODES],
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
        )
        self._lines = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._next = 4  # of the last address
        # The addresses of nodes that no test has taken.
        self.nodes = {"127.0.0.2", "127.0.0.3", "127.0.0.4"}
        self._hear()

    @property
    def address(self):
        return self._told["address"]

    def add(self, num_gpus=0, **arguments):
        """Add a node; give its address, which no other has had."""
        self._next += 1
        address = f"127.0.0.{self._next}"
        self._ask(node_ip_address=address, num_gpus=num_gpus, **arguments)
        self.nodes.add(address)
        return address

    def kill(self, address):
        """Kill the raylet of a node, as a machine that is lost."""
        self._ask(kill=address)
        self.nodes.remove(address)

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()  # and the kernel kills the raylets
            self.process.wait()
        self._reader.join(10)
        self.errors.close()
        self.folder.cleanup()

    def _ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self._hear()

    def _read(self):
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def _hear(self):
        while True:
            try:
                line = self._lines.get(timeout=_READY_SECS)
            except queue.Empty:
                line = ""
            if not line:
                self.errors.seek(0)
                pytest.fail(f"no Ray cluster was started:\n{self.errors.read()}")
            if line.startswith("{"):
                self._told = json.loads(line)
                return


@pytest.fixture(scope="module")
def cluster():
    """Return a `RayCluster` of 127.0.0.2, its head, with 1 CPU, and two nodes with 2."""
    cluster = RayCluster()
    yield cluster
    cluster.close()


class RayJob:
    """A job in the cluster, as the command that has started it tells of it."""

    def __init__(self, launch):
        self.launch = launch

    def __getattr__(self, name):
        return getattr(self.launch, name)

    def pid(self, task, life=0):
        return int(self.wait_for(rf"^{task} *\| pid (\d+)$", count=life + 1)[1])

    def actor_pid(self, task, life=0):
        """Return the pid of the Ray worker process that has the task."""
        return _parent(_parent(self.pid(task, life)))

    def node(self, task):
        """Return the address of the node that the task was placed on last."""
        self.wait_for(rf"^launcher +\| {task} is on node ")
        return re.findall(rf"\| {task} is on node (\S+)$", self.text, re.MULTILINE)[-1]

    def steps(self, task="chief"):
        found = re.findall(rf"^{task} *\| step (\d+)$", self.text, re.MULTILINE)
        return [int(step) for step in found]


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def train(launch, cluster):
    """Return a function that starts a job of the program `train.py` in the cluster."""

    def start(options, *arguments, program=_PROGRAM, address=None, **environ):
        where = ("--backend", "ray", "--ray-address", address or cluster.address)
        return RayJob(launch(*where, *options, program, *arguments, **environ))

    return start
