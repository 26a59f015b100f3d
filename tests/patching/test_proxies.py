"""TensorFlow's servers reach each other although the environment names a proxy."""

import threading

import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

_FORMS = {
    "dict": dict,
    "ClusterSpec": tf.train.ClusterSpec,
    "ClusterDef": lambda cluster: tf.train.ClusterSpec(cluster).as_cluster_def(),
}


@pytest.mark.parametrize("form", _FORMS)
def test_a_session_reaches_the_ps_without_the_proxy(form, monkeypatch, free_addresses):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    ps, worker = free_addresses(2)
    cluster = _FORMS[form]({"ps": [ps], "worker": [worker]})
    tf.distribute.Server(cluster, "ps", 0)
    server = tf.distribute.Server(cluster, "worker", 0)
    results = []

    def run():
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            there = tf.constant(3) + 4
            with tf.compat.v1.Session(server.target) as session:
                results.append(session.run(there))

    # A session that asks the proxy waits for ever, and no signal interrupts it.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert results == [7]
