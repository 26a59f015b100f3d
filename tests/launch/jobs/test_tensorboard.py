"""TensorBoard with a job: what it shows, in its own words and in a browser."""

import http.client
import json
import socket
import time
import urllib.parse
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"
_ADDRESS = r"TensorBoard: http://127\.0\.0\.1:(\d+)/$"
_RATES = {"global_step/sec"}
_CHECKPOINTS = {"checkpoint/blocked_secs", "checkpoint/write_secs"}


class Page:
    """A TensorBoard, by its port."""

    def __init__(self, port):
        self.port = port

    def get(self, path, **query):
        """Return what it answers, decoded from JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def wait_for_tags(self, wanted):
        """Wait until it shows these tags, a set by the name of their run."""
        deadline = time.monotonic() + 60
        while True:
            tags = self.get("/data/plugin/scalars/tags")
            found = {run: set(names) for run, names in tags.items()}
            if all(names <= found.get(run, set()) for run, names in wanted.items()):
                return
            assert time.monotonic() < deadline, f"{wanted} not in {found}"
            time.sleep(0.2)

    def is_there(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    def wait_until_gone(self):
        deadline = time.monotonic() + 30
        while self.is_there():
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _open(job):
    return Page(int(job.wait_for(_ADDRESS, timeout_secs=90)[1]))


def test_the_page_of_one_process_has_rates_checkpoints_loss_and_evaluation(
    launch, tmp_path
):
    go = tmp_path / "go"
    job = launch(
        *("--tensorboard", "0", _PROGRAM, "--steps", "50", "--log_steps", "5"),
        *("--save_steps", "10", "--eval_secs", "0", "--gate", f"40:{go}"),
    )
    page = _open(job)
    page.wait_for_tags({".": {"loss"} | _RATES | _CHECKPOINTS, "eval": {"loss"}})
    go.touch()
    assert job.end() == 0, job.text
    assert not page.is_there()


@pytest.mark.parametrize("options", [(), ("--evaluator",)], ids=["process", "cluster"])
def test_it_ends_with_a_job_that_is_killed(launch, tmp_path, options):
    job = launch(
        *(*options, "--tensorboard", "0", _PROGRAM),
        *("--gate", f"10:{tmp_path / 'never'}"),
    )
    page = _open(job)
    assert page.is_there()
    job.process.kill()
    page.wait_until_gone()
