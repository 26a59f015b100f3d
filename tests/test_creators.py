"""A chief says good-bye to its parameter server in bounded time."""

import socket

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime import creators


@pytest.fixture
def silent_address():
    """Give an address that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.timeout(60)
def test_a_ps_that_does_not_answer_holds_up_no_error_of_the_training(
    silent_address, free_addresses, set_tf_config, caplog
):
    (chief,) = free_addresses(1)
    cluster = {"chief": [chief], "ps": [silent_address]}
    set_tf_config({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    config = er.RunConfig()
    server = tf.distribute.Server(config.cluster_spec, "chief", 0)
    assert server.target == config.master
    creators.disown(config, timeout_secs=1)
    told = [r.getMessage() for r in caplog.records if r.name == creators.__name__]
    assert told == [
        "ps 0 did not take note within 1 s that its values are no good "
        "(PeerTimeoutError); a chief that comes back while it is alive goes on with them"
    ]
