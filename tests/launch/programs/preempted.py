"""An untouched Estimator script that says how far it has come, and may be stopped."""

import argparse
import os
import signal
import threading
import time

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", choices=["none", "mwms", "ps"], default="none")
parser.add_argument("--sync", type=int, help="replicas of a SyncReplicasOptimizer")
parser.add_argument("--no_eager", action="store_true")
parser.add_argument("--only_train", action="store_true")
parser.add_argument("--step_secs", type=float, default=0.01)
parser.add_argument("--data_secs", type=float, help="that each batch takes")
parser.add_argument("--save_steps", type=int, default=100_000)
parser.add_argument("--steps", type=int, default=1_000_000)
parser.add_argument("--at", help="where the program sends itself the signal")
parser.add_argument("--signal", default="SIGTERM")
parser.add_argument("--slow_save_secs", type=float, default=0)
parser.add_argument("--hang", choices=["python", "tensorflow"], help="in step 5")
args = parser.parse_args()
if args.no_eager:
    tf.compat.v1.disable_eager_execution()


def say(line):
    """Write the whole line at once: threads print here, and a test reads lines."""
    os.write(1, f"{line}\n".encode())


say(f"pid {os.getpid()}")


def save_slowly(write):
    """Write the checkpoint of step 5 slowly."""

    def slow(self, prefix, values):
        name = os.path.basename(prefix)
        say(f"saves {name}")
        time.sleep(args.slow_save_secs if name == "model.ckpt-5" else 0)
        write(self, prefix, values)

    return slow


if args.slow_save_secs:
    from estimator_runtime.checkpoint.tensor_bundle.writer import BundleWriter

    BundleWriter.write = save_slowly(BundleWriter.write)

strategy = {
    "none": lambda: None,
    "mwms": tf.distribute.MultiWorkerMirroredStrategy,
    "ps": tf.compat.v1.distribute.experimental.ParameterServerStrategy,
}[args.strategy]()


def come_to(place):
    say(place)
    if args.at == place:
        signal.raise_signal(signal.Signals[args.signal])


def model_fn(features, labels, mode, config):
    come_to(f"model_fn {mode}")
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean(tf.square(weight - labels))
    step = tf.compat.v1.train.get_global_step()
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
    train_op, training_hooks = None, []
    if args.sync:
        optimizer = tf.compat.v1.train.SyncReplicasOptimizer(
            optimizer, args.sync, args.sync
        )
    if args.hang == "tensorflow":
        waits = tf.numpy_function(hang_in_step_5, [step], tf.int64)
        loss += tf.cast(waits, tf.float32)
    if mode == tf.estimator.ModeKeys.TRAIN:
        train_op = optimizer.minimize(loss, step)
        if args.sync:
            training_hooks = [optimizer.make_session_run_hook(config.is_chief)]
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        training_hooks=training_hooks,
        evaluation_hooks=[Evaluation()],
    )


class Step(tf.estimator.SessionRunHook):
    """Prints the global step after each step that it sees, and the last one once."""

    if not (args.at or args.hang):  # else something is to happen at a step
        scheduled_as = tf.estimator.SessionRunHook

    def begin(self):
        self.step = tf.compat.v1.train.get_global_step()
        self.seen = None

    def after_create_session(self, session, coord):
        come_to("session")

    def after_run(self, context, values):
        self.seen = step = int(context.session.run(self.step))
        come_to(f"step {step}")
        time.sleep(600 if args.hang == "python" and step == 5 else args.step_secs)

    def end(self, session):
        last = int(session.run(self.step))
        if last != self.seen:
            say(f"step {last}")


class Evaluation(tf.estimator.SessionRunHook):
    def after_run(self, context, values):
        come_to("evaluation")
        time.sleep(args.step_secs)


def hang_in_step_5(step):
    if step == 4:  # so many have been trained
        say("hangs")
        threading.Event().wait()
    return step


def input_fn():
    data = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()
    return data.map(arrive_slowly) if args.data_secs else data


def arrive_slowly(*batch):
    waited = tf.numpy_function(lambda: time.sleep(args.data_secs), [], [])
    with tf.control_dependencies([waited]):
        return tf.nest.map_structure(tf.identity, batch)


config = tf.estimator.RunConfig(
    "model", save_checkpoints_steps=args.save_steps, train_distribute=strategy
)
estimator = tf.estimator.Estimator(model_fn, config=config)
if args.only_train:
    estimator.train(input_fn, hooks=[Step()], max_steps=args.steps)
else:
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=args.steps, hooks=[Step()]),
        tf.estimator.EvalSpec(input_fn, steps=None, throttle_secs=0),
    )
say("done")
