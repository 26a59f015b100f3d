"""The frozen Estimator trains through MonitoredTrainingSession of this package."""

import inspect

import tensorflow as tf
from tensorflow.python.training import monitored_session
from tensorflow.python.training import training as tensorflows_training

import estimator_runtime as er
from estimator_runtime.session import monitored_training_session as session_module

train = tf.compat.v1.train


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean(tf.square(weight * features - labels))
    step = train.get_global_step()
    train_op = train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [2.0])).repeat()


def test_the_frozen_package_calls_ours():
    assert tensorflows_training.MonitoredTrainingSession is er.MonitoredTrainingSession
    assert monitored_session.MonitoredTrainingSession is not er.MonitoredTrainingSession


def test_an_estimator_trains_through_ours(tmp_path):
    class Stack(train.SessionRunHook):
        def begin(self):
            self.files = [frame.filename for frame in inspect.stack()]

    stack = Stack()
    estimator = tf.estimator.Estimator(model_fn, tmp_path)
    estimator.train(input_fn, hooks=[stack], steps=2)
    ours = stack.files.index(session_module.__file__)
    frozen = [i for i, name in enumerate(stack.files) if "tensorflow_estimator" in name]
    assert frozen[0] == ours + 1  # its caller
    assert estimator.get_variable_value("global_step") == 2


class SessionConfig(train.SessionRunHook):
    """Keeps the ConfigProto of the session that it runs in."""

    def after_create_session(self, session, coord):
        self.found = session._config


SESSION_CONFIG = tf.compat.v1.ConfigProto(
    gpu_options=tf.compat.v1.GPUOptions(
        allow_growth=True, per_process_gpu_memory_fraction=0.25
    ),
    allow_soft_placement=True,
    log_device_placement=True,
)


def test_the_session_config_of_a_run_config_reaches_an_estimators_session(tmp_path):
    seen = SessionConfig()
    config = er.RunConfig(tmp_path, session_config=SESSION_CONFIG)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(input_fn, hooks=[seen], steps=1)
    assert seen.found == SESSION_CONFIG
