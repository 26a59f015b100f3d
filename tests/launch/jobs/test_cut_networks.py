"""Tasks on machines of their own, whose network is cut while they train."""

import os
import re
import subprocess
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("tasks notice a cut network by deadlines in seconds")

_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"
_BRIDGE = "hub"


class Networks:
    """A network namespace for each task, all of them joined by a switch.

    Args:
        task_types: One task of each.
    """

    def __init__(self, task_types):
        self._name = f"er-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._namespaces = []
        self._types = task_types

    def open(self):
        """Make them; no packet of theirs leaves them.

        Raises:
            OSError: If the kernel, or its rights, do not allow it.
        """
        hub = self._namespace("hub")
        _ip("-n", hub, "link", "add", _BRIDGE, "type", "bridge")
        _ip("-n", hub, "link", "set", _BRIDGE, "up")
        for number, task_type in enumerate(self._types, 1):
            own = self._namespace(task_type)
            port = f"to-{task_type}"
            peer = ("peer", "name", "eth0", "netns", own)
            _ip("-n", hub, "link", "add", port, "type", "veth", *peer)
            _ip("-n", hub, "link", "set", port, "master", _BRIDGE, "up")
            _ip("-n", own, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", own, "link", "set", link, "up")

    @property
    def cluster(self):
        """The addresses of all but the evaluator."""
        return {
            task_type: [f"10.77.0.{number}:2222"]
            for number, task_type in enumerate(self._types, 1)
            if task_type != "evaluator"
        }

    def within(self, task_type):
        """Return the command that runs what follows in the network of a task."""
        return ("ip", "netns", "exec", f"{self._name}-{task_type}")

    def set(self, task_type, state):
        """Set the cable of a task "up" or "down"."""
        _ip("-n", f"{self._name}-hub", "link", "set", f"to-{task_type}", state)

    def set_loopback(self, task_type, state):
        """Set the loopback device of a task's machine "up" or "down"."""
        _ip("-n", f"{self._name}-{task_type}", "link", "set", "lo", state)

    def close(self):
        """Take all of them away."""
        for each in self._namespaces:
            _ip("netns", "delete", each)

    def _namespace(self, name):
        namespace = f"{self._name}-{name}"
        _ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        return namespace


def _ip(*arguments):
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@pytest.fixture
def networks():
    """Return a function that makes a network for each task of a cluster."""
    made = []

    def networks(*task_types):
        made.append(Networks(task_types))
        try:
            made[-1].open()
        except OSError as error:
            pytest.skip(f"no network namespaces can be made here: {error}")
        return made[-1]

    yield networks
    for each in made:
        each.close()


def _start_all(start, networks, *arguments, **environ):
    tasks = {}
    for task_type in networks.cluster:
        tasks[task_type] = start(
            networks.cluster,
            task_type,
            *arguments,
            within=networks.within(task_type),
            **environ,
        )
    return tasks


_SILENT = r"no answer from {} for (\d+) s \(is it stopped, or cut off\?\); "


def test_a_ps_that_is_cut_off_is_named_and_its_training_goes_on_when_it_is_back(
    start, networks
):
    network = networks("ps", "chief", "worker")
    tasks = _start_all(start, network, "--steps", "1000000", "--step_secs", "0.05")
    for name in ("chief", "worker"):
        tasks[name].wait_for_step(10)
    network.set("ps", "down")
    ps = _SILENT.format("ps 0 at 10.77.0.1:2222")
    for name in ("chief", "worker"):
        assert int(tasks[name].wait_for(ps)[1]) < 15
    network.set("ps", "up")
    for name in ("chief", "worker"):
        tasks[name].wait_for("^ps 0 at 10.77.0.1:2222 answers again$")
        tasks[name].wait_for_step(max(tasks[name].steps) + 10)
        assert tasks[name].steps == sorted(tasks[name].steps)


def test_a_ps_that_stays_cut_off_is_given_up_and_adopted_when_it_is_back(
    start, networks, tmp_path
):
    network = networks("ps", "chief", "worker")
    arguments = ("--steps", "150", "--save_steps", "1000000", "--step_secs", "0.05")
    arguments = (*arguments, "--gate", "100:go_on")
    limit = {"ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS": "8"}
    first = _start_all(start, network, *arguments, **limit)
    for name in ("chief", "worker"):
        first[name].wait_for_step(10)
    network.set("ps", "down")
    for name in ("chief", "worker"):
        assert first[name].end() == 1, first[name].text
        assert re.search(
            r"^no answer from ps 0 at 10.77.0.1:2222 for \d+ s "
            r"\(ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS is 8\), and no step can end without "
            r"it; giving up$",
            first[name].text,
            re.MULTILINE,
        )
    network.set("ps", "up")
    (tmp_path / "go_on").touch()
    second = {
        name: start(network.cluster, name, *arguments, within=network.within(name))
        for name in ("chief", "worker")
    }
    for task in (second["chief"], second["worker"], first["ps"]):
        assert task.end() == 0, task.text
    # Nothing was saved but the start: what was trained until then was in the ps.
    assert min(second["chief"].steps) > max(first["chief"].steps)


def test_a_worker_that_is_cut_off_gives_up_and_the_others_train_on(start, networks):
    network = networks("ps", "chief", "worker")
    tasks = _start_all(
        start,
        network,
        *("--steps", "1000000", "--step_secs", "0.05"),
        ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS="8",
    )
    tasks["worker"].wait_for_step(10)
    network.set("worker", "down")
    assert tasks["worker"].end() == 1, tasks["worker"].text
    assert "no answer from ps 0 at 10.77.0.1:2222 for" in tasks["worker"].text
    tasks["chief"].wait_for(_SILENT.format("worker 0 at 10.77.0.3:2222"))
    tasks["chief"].wait_for_step(max(tasks["chief"].steps) + 10)


def test_a_task_of_a_mirrored_strategy_that_is_cut_off_ends_them_all(start, networks):
    network = networks("chief", "worker")
    tasks = _start_all(
        start,
        network,
        *("--strategy", "mwms", "--steps", "1000000", "--step_secs", "0.05"),
        ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS="8",
    )
    for task in tasks.values():
        task.wait_for_step(10)
    network.set("worker", "down")
    others = {
        "chief": r"worker 0 at 10\.77\.0\.2",
        "worker": r"chief 0 at 10\.77\.0\.1",
    }
    for name, other in others.items():
        assert tasks[name].end() == 1, tasks[name].text
        given_up = rf"^no answer from {other}:2222 for \d+ s .*; giving up$"
        assert re.search(given_up, tasks[name].text, re.M), tasks[name].text


def test_the_tasks_of_a_job_that_are_cut_off_are_restarted_and_adopt_the_ps(
    launch, networks, tmp_path
):
    network = networks("machine")
    job = launch(
        *("--workers", "1", "--ps", "1", "--heartbeat-timeout", "6"),
        *(_PROGRAM, "--steps", "100", "--save_steps", "1000000", "--gate", "40:go_on"),
        within=network.within("machine"),
    )
    trainers = ("chief", "worker 0")
    for name in trainers:
        job.wait_for(rf"^{name} *\| step 4\d$")
    network.set_loopback("machine", "down")
    for name in trainers:
        silent = _SILENT.format(r"ps 0 at 127\.0\.0\.1:\d+")
        assert int(job.wait_for(rf"^{name} *\| {silent}")[1]) < 15
        job.wait_for(
            rf"^launcher *\| {name} ended with PeerTimeoutError \(exit status 1\): "
            r"restarting it now \(1 of 3\);"
        )
    (tmp_path / "go_on").touch()
    network.set_loopback("machine", "up")
    assert job.end() == 0, job.text
    steps = [int(n) for n in re.findall(r"^chief *\| step (\d+)$", job.text, re.M)]
    assert steps == sorted(steps), "the global step fell"
