"""The benchmark of clusters works and measures what it says; how fast is not tested."""

import json
import socket
import time

import pytest
import tensorflow as tf

from benchmarks.steps import ps_cluster
from benchmarks.steps.slow_network import relay
from benchmarks.training.contenders import Stopwatch, Window


@pytest.mark.long("starts three clusters, one after the other")
def test_a_step_is_measured_in_three_ways_with_the_cpu_time_of_the_ps(
    tmp_path, run_benchmark
):
    run_benchmark("cluster", "--quick", "--output", "out", cwd=tmp_path)
    report = json.loads((tmp_path / "out" / "cluster.json").read_text())
    (model,) = report["models"].values()
    assert list(model["contenders"]) == ["stock", "ours", "not packed"]
    for figures in model["contenders"].values():
        assert figures["server_cpu_us_per_step"]["median"] >= 0
        assert figures["cpu_us_per_step"]["median"] > 0
    assert "CPU µs/step of the ps" in (tmp_path / "out" / "cluster.md").read_text()


def test_several_trainers_are_measured_once_all_have_warmed_up(tmp_path):
    window = Window(warm_up=3, steps=4, trainers=2, meeting=str(tmp_path))
    stopwatch = Stopwatch(window)
    line = stopwatch.hook._formatter
    for _ in range(5):  # steps 1, 3, 5, 7 and 9
        line({})
    assert stopwatch.stamps == []
    (tmp_path / "the other one").touch()
    line({})  # step 11
    line({})
    assert len(stopwatch.stamps) == 1
    with pytest.raises(tf.errors.OutOfRangeError, match="has been measured"):
        line({})  # step 15
    assert len(stopwatch.stamps) == 2


def test_a_model_that_does_not_exist_is_refused():
    with pytest.raises(
        SystemExit, match="--models has no '7 variables'; give 'linear'"
    ):
        ps_cluster.measure(quick=True, announce=print, models=["7 variables"])


def test_a_negative_delay_is_refused():
    with pytest.raises(SystemExit, match="--delay-ms is -1; give 0 or more"):
        ps_cluster.measure(quick=True, announce=print, delay_ms=-1)


def test_all_that_passes_a_relay_arrives_late_in_both_directions():
    server = socket.create_server(("127.0.0.1", 0))
    with server, relay(f"127.0.0.1:{server.getsockname()[1]}", 0.02) as address:
        host, port = address.split(":")
        client = socket.create_connection((host, int(port)), timeout=10)
        served, _ = server.accept()
        with client, served:
            served.settimeout(10)
            for sender, receiver in ((client, served), (served, client)):
                sent_at = time.monotonic()
                sender.sendall(b"a gradient")
                assert receiver.recv(100) == b"a gradient"
                assert time.monotonic() - sent_at >= 0.02
            client.shutdown(socket.SHUT_WR)
            assert served.recv(100) == b""


def test_a_task_listens_at_its_address_and_connects_to_the_relays_of_others():
    cluster = {"chief": ["chief:1"], "ps": ["ps:1"], "worker": ["a:1", "b:1"]}
    routes = {"chief:1": "chief:9", "ps:1": "ps:9", "a:1": "a:9", "b:1": "b:9"}
    task = ps_cluster._task(cluster, routes, "worker", 1, "train")
    assert json.loads(task["env"]["TF_CONFIG"]) == {
        "cluster": {"chief": ["chief:9"], "ps": ["ps:9"], "worker": ["a:9", "b:1"]},
        "task": {"type": "worker", "index": 1},
    }
