"""A RunConfig's training_session_kwargs, and training with them."""

import pathlib

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

import estimator_runtime as er
from estimator_runtime.patching.frozen import default_session_config

train = tf.compat.v1.train

CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222"],
    "worker": ["host2:2222", "host3:2222"],
}


def build_model():
    """Two variables, momentum, global step and summary; returns train_op and loss."""
    x = tf.random.stateless_uniform([8, 2], seed=(1, 2))
    weight = tf.compat.v1.get_variable("weight", initializer=[[0.0], [0.0]])
    bias = tf.compat.v1.get_variable("bias", initializer=[0.0])
    global_step = train.get_or_create_global_step()
    # Nothing else keeps hooks from reading the step when it has been increased.
    with tf.control_dependencies([training_util._get_or_create_global_step_read()]):
        loss = tf.reduce_mean(tf.square(x @ weight + bias - x @ [[1.0], [2.0]]))
    tf.compat.v1.summary.scalar("loss", loss)
    return train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step), loss


def train_in_session(config, last_step):
    """Train a new graph to `last_step`; returns its first step, first and last loss."""
    with tf.Graph().as_default():
        train_op, loss = build_model()
        global_step = train.get_global_step()
        stop = train.StopAtStepHook(last_step=last_step)
        kwargs = config.training_session_kwargs(hooks=[stop])

        def now(step_context):
            return step_context.session.run([global_step, loss])

        with er.MonitoredTrainingSession(**kwargs) as session:
            first_step, first_loss = session.run_step_fn(now)
            while not session.should_stop():
                _, last_loss = session.run([train_op, loss])
    return first_step, first_loss, last_loss


def train_with_estimator(config, last_step):
    """Train the same model with an Estimator."""

    def model_fn(features, labels, mode):
        train_op, loss = build_model()
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors(({"unused": [0.0]}, [0.0])).repeat()

    tf.estimator.Estimator(model_fn, config=config).train(input_fn, max_steps=last_step)


def checkpoint_steps(folder):
    """Global steps of the checkpoints that are listed, and of those on disk."""
    listed = tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths
    on_disk = pathlib.Path(folder).glob("model.ckpt-*.index")
    return (
        [int(path.rpartition("-")[2]) for path in listed],
        sorted(int(path.stem.rpartition("-")[2]) for path in on_disk),
    )


def variables(folder):
    """Name to value, as lists, of everything in the newest checkpoint."""
    reader = tf.train.load_checkpoint(folder)
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name).tolist() for name in names}


def summaries(folder):
    """Tag to the steps at which it was written."""
    steps = {}
    for path in sorted(pathlib.Path(folder).glob("events.*")):
        for event in train.summary_iterator(str(path)):
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


def test_a_local_config_stands_for_these_arguments():
    config = er.RunConfig(
        model_dir="/models/a",
        save_summary_steps=11,
        save_checkpoints_steps=12,
        log_step_count_steps=15,
        session_creation_timeout_secs=17,
        checkpoint_save_graph_def=False,
    )
    hooks, chief_only_hooks = [train.NanTensorHook("loss")], [train.FinalOpsHook([])]
    with tf.Graph().as_default():
        kwargs = config.training_session_kwargs(None, hooks, chief_only_hooks)
    assert isinstance(kwargs.pop("scaffold"), train.Scaffold)
    assert kwargs == {
        "master": "",
        "is_chief": True,
        "checkpoint_dir": "/models/a",
        "hooks": hooks,
        "chief_only_hooks": chief_only_hooks,
        "save_checkpoint_secs": None,
        "save_checkpoint_steps": 12,
        "save_summaries_steps": 11,
        "config": default_session_config(),
        "log_step_count_steps": 15,
        "max_wait_secs": 17,
        "save_graph_def": False,
    }


def test_a_worker_of_a_cluster_stands_for_these_arguments(set_tf_config):
    set_tf_config({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})
    session_config = tf.compat.v1.ConfigProto(log_device_placement=True)
    config = er.RunConfig(model_dir="/models/a", session_config=session_config)
    with tf.Graph().as_default():
        kwargs = config.training_session_kwargs()
    assert isinstance(kwargs.pop("scaffold"), train.Scaffold)
    assert kwargs == {
        "master": "grpc://host3:2222",
        "is_chief": False,
        "checkpoint_dir": "/models/a",
        "hooks": None,
        "chief_only_hooks": None,
        "save_checkpoint_secs": 600,
        "save_checkpoint_steps": None,
        "save_summaries_steps": 100,
        "config": tf.compat.v1.ConfigProto(
            log_device_placement=True,
            device_filters=["/job:ps", "/job:worker/task:1"],
        ),
        "log_step_count_steps": 100,
        "max_wait_secs": 7200,
        "save_graph_def": True,
    }


def test_a_scaffold_without_saver_gets_one_and_keeps_the_rest():
    with tf.Graph().as_default():
        build_model()
        given = train.Scaffold(init_op=tf.no_op("my_init"))
        config = er.RunConfig(keep_checkpoint_max=3)
        scaffold = config.training_session_kwargs(scaffold=given)["scaffold"]
        assert (given.saver, scaffold.init_op) == (None, given.init_op)
        scaffold.finalize()
        definition = scaffold.saver.as_saver_def()
    assert (definition.max_to_keep, definition.sharded) == (3, True)


@pytest.mark.parametrize("keep", [None, 0])
def test_a_config_that_keeps_all_checkpoints_makes_a_saver_that_does(keep):
    with tf.Graph().as_default():
        build_model()
        config = er.RunConfig(keep_checkpoint_max=keep, keep_checkpoint_every_n_hours=2)
        scaffold = config.training_session_kwargs()["scaffold"].finalize()
        definition = scaffold.saver.as_saver_def()
    assert (definition.max_to_keep, definition.keep_checkpoint_every_n_hours) == (0, 2)


def test_a_saver_of_your_own_is_used():
    with tf.Graph().as_default():
        build_model()
        mine = train.Scaffold(saver=train.Saver())
        kwargs = er.RunConfig().training_session_kwargs(scaffold=mine)
        assert kwargs["scaffold"] is mine
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, mine.saver)
        assert er.RunConfig().training_session_kwargs()["scaffold"] is None


def test_without_a_graph_there_is_nothing_to_save():
    assert tf.executing_eagerly()
    with pytest.raises(RuntimeError, match=r"with tf.Graph\(\).as_default\(\)"):
        er.RunConfig().training_session_kwargs()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"save_checkpoints_steps": 3, "keep_checkpoint_max": 2},
        {"save_checkpoints_steps": 5, "keep_checkpoint_max": None},
        {"save_summary_steps": 2},
        {"save_summary_steps": 0},
        {"save_checkpoints_secs": 1000, "checkpoint_save_graph_def": False},
    ],
)  # fmt: skip
def test_training_leaves_what_an_estimator_with_this_config_leaves(settings, tmp_path):
    def files(folder):
        """Names of the files without the clock and host of the events files."""
        names = {
            "events" if "events" in path.name else path.name
            for path in folder.iterdir()
        }
        return names - {"eval"}

    config = er.RunConfig(tf_random_seed=1, log_step_count_steps=None, **settings)
    by_session, by_estimator = tmp_path / "session", tmp_path / "estimator"
    train_in_session(config.replace(model_dir=by_session), 8)
    train_with_estimator(config.replace(model_dir=by_estimator), 8)
    assert checkpoint_steps(by_session) == checkpoint_steps(by_estimator)
    assert files(by_session) == files(by_estimator)
    assert summaries(by_session).get("loss") == summaries(by_estimator).get("loss")
    assert variables(by_session) == variables(by_estimator)
