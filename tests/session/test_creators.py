"""What a chief does with the values of its parameter server, and in which time."""

import contextlib
import math
import os
import signal
import socket
import threading

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.session import creators
from estimator_runtime.signals import request

er.install()

tf1 = tf.compat.v1


@pytest.fixture
def silent_address():
    """Return an address that takes connections, and never answers."""
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
    creators.disown(cluster, config.session_config, timeout_secs=1)
    told = [r.getMessage() for r in caplog.records if r.name == creators.__name__]
    assert told == [
        "ps 0 could not be told within 1 s that its values are unusable "
        "(PeerTimeoutError); a chief that restarts while it is alive goes on from them"
    ]


@pytest.fixture
def chief_target(free_addresses, set_tf_config):
    """Return what a chief's sessions connect to, beside a ps that is alive."""
    chief, ps = free_addresses(2)
    cluster = {"chief": [chief], "ps": [ps]}
    set_tf_config({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    servers = [tf.distribute.Server(cluster, name, 0) for name in ("ps", "chief")]
    yield servers[1].target
    del servers


@pytest.fixture
def train(chief_target, tmp_path):
    """Return a function that trains, as a chief that comes back to its live ps does.

    It saves what it begins with, adds a number to the weight in each step, and ends with
    an error. The function gives the step and the weight that it began with.
    """

    def train(*added, error="as of a program"):
        began_with = ()
        on_ps = tf1.train.replica_device_setter(1, worker_device="/job:chief/task:0")
        with tf.Graph().as_default(), tf1.device(on_ps):
            weight = tf1.get_variable("weight", initializer=1.0)
            step = tf1.train.create_global_step()
            number = tf1.placeholder(tf.float32)
            both = weight.assign_add(number), step.assign_add(1)
            with (
                pytest.raises(RuntimeError, match=error),
                er.MonitoredTrainingSession(
                    chief_target,
                    checkpoint_dir=str(tmp_path),
                    save_summaries_steps=None,
                ) as session,
            ):
                began_with = session.run((step, weight))
                for each in added:
                    session.run(both, {number: each})
                raise RuntimeError("as of a program")
        return tuple(map(float, began_with))

    return train


@pytest.mark.timeout(120)
def test_a_chief_goes_on_with_live_values_unless_there_is_a_nan(
    train, caplog, tmp_path
):
    assert train(2.0, 3.0) == (0, 1.0)
    assert train(math.nan) == (2, 6.0)
    assert train() == (2, 6.0)
    told = [r.getMessage() for r in caplog.records if r.name == creators.__name__]
    assert told == [
        "the parameter servers are alive at step 2; going on from there, not from the "
        f"checkpoint {tmp_path}/model.ckpt-0",
        "the parameter servers are alive at step 3, but have NaN in 'weight'; going on "
        f"from the checkpoint {tmp_path}/model.ckpt-2",
    ]


@pytest.mark.timeout(120)
def test_a_chief_goes_on_with_live_values_beside_an_unreadable_state_file(
    train, tmp_path
):
    assert train(2.0) == (0, 1.0)
    (tmp_path / "checkpoint").write_text("model_checkpoint_path: model.ckpt-1")
    assert train() == (1, 3.0)


@pytest.mark.timeout(120)
def test_a_chief_that_restores_nothing_beside_a_good_checkpoint_is_refused(
    train, unrecovered, tmp_path
):
    assert train(2.0) == (0, 1.0)
    # TensorFlow takes this for no file, and here nobody makes it again.
    (tmp_path / "checkpoint").write_text("model_checkpoint_path: model.ckpt-1")
    unrecovered()
    assert train(error=r"although .*/model\.ckpt-0 is good") == ()


class Stop(tf1.train.SessionRunHook):
    """Stops the program before the hook that saves has seen the session."""

    def after_create_session(self, session, coord):
        signal.raise_signal(signal.SIGTERM)


@contextlib.contextmanager
def stopped():
    """Expect that SIGTERM ends the program, as an Estimator lets it."""
    with pytest.raises(SystemExit) as told, request.watched():
        yield
    assert told.value.code == 143


@pytest.mark.timeout(120)
def test_a_chief_that_is_stopped_as_it_comes_back_saves_the_live_values(
    chief_target, train, tmp_path
):
    assert train(2.0, 3.0) == (0, 1.0)
    on_ps = tf1.train.replica_device_setter(1, worker_device="/job:chief/task:0")
    with stopped(), tf.Graph().as_default(), tf1.device(on_ps):
        tf1.get_variable("weight", initializer=1.0)
        tf1.train.create_global_step()
        with er.MonitoredTrainingSession(
            chief_target, checkpoint_dir=str(tmp_path), chief_only_hooks=[Stop()]
        ) as session:
            assert session.should_stop()
    saved = tf.train.load_checkpoint(str(tmp_path))
    assert (saved.get_tensor("global_step"), saved.get_tensor("weight")) == (2, 6.0)


@pytest.mark.timeout(60)
def test_a_chief_that_is_stopped_while_it_waits_for_a_ps_ends_at_once(
    silent_address, free_addresses, set_tf_config, tmp_path
):
    (chief,) = free_addresses(1)
    cluster = {"chief": [chief], "ps": [silent_address]}
    set_tf_config({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    server = tf.distribute.Server(cluster, "chief", 0)
    with stopped(), tf.Graph().as_default():
        tf1.train.create_global_step()
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        er.MonitoredTrainingSession(server.target, checkpoint_dir=str(tmp_path))
    assert list(tmp_path.glob("*.index")) == []


class FirstStep(tf1.train.SessionRunHook):
    def after_create_session(self, session, coord):
        self.value = session.run(tf1.train.get_global_step())


@pytest.mark.timeout(120)
def test_a_chief_does_not_go_on_with_live_values_whose_loss_was_nan(
    chief_target, tmp_path
):
    """Here none of them is; and the Estimator trains without train_and_evaluate."""

    def model_fn(features, labels, mode, params):
        weight = tf1.get_variable("weight", initializer=1.0)
        step = tf1.train.get_global_step()
        is_spoilt = tf.equal(step, params["nan_at"])
        loss = tf.square(weight) + tf.where(is_spoilt, math.nan, 0.0)
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, global_step=step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def train(nan_at):
        first = FirstStep()
        config = er.RunConfig(str(tmp_path))
        assert config.master == chief_target
        tf.estimator.Estimator(
            model_fn, config=config, params={"nan_at": nan_at}
        ).train(
            lambda: tf.data.Dataset.from_tensors(0.0).repeat(),
            hooks=[first],
            max_steps=10,
        )
        return first.value

    with pytest.raises(tf.estimator.NanLossDuringTrainingError):
        train(nan_at=5)
    assert train(nan_at=-1) == 0
