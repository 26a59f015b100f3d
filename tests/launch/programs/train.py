"""An untouched Estimator script, which says who it is and how far it has come."""

import argparse
import os
import time

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="model")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--save_steps", type=int, default=20)
parser.add_argument("--log_steps", type=int, default=100)
parser.add_argument("--eval_secs", type=int, help="between two evaluations")
parser.add_argument("--step_secs", type=float, default=0.0)
parser.add_argument("--gate", action="append", default=[], metavar="STEP:FILE")
parser.add_argument("--strategy", choices=["none", "mwms", "ps"], default="none")
parser.add_argument("--sync", type=int, help="replicas of a SyncReplicasOptimizer")
parser.add_argument("--timeout_secs", type=int, default=60)
parser.add_argument("--nan_at", type=int)
parser.add_argument("--stop_at", type=int)
parser.add_argument("--fail_in", choices=["input_fn", "hook"])
args = parser.parse_args()
print("pid", os.getpid(), flush=True)

strategy = {
    "none": lambda: None,
    "mwms": tf.distribute.MultiWorkerMirroredStrategy,
    "ps": tf.compat.v1.distribute.experimental.ParameterServerStrategy,
}[args.strategy]()


def model_fn(features, labels, mode, config):
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"weight": tf.reshape(weight, [1])}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean(tf.square(weight - labels))
    step = tf.compat.v1.train.get_global_step()
    if args.nan_at is not None:
        loss *= tf.where(step >= args.nan_at, float("nan"), 1.0)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.01)
    train_op, training_hooks = None, []
    if args.sync:
        optimizer = tf.compat.v1.train.SyncReplicasOptimizer(
            optimizer, args.sync, args.sync
        )
    if mode == tf.estimator.ModeKeys.TRAIN:
        train_op = optimizer.minimize(loss, step)
        if args.sync:
            training_hooks = [optimizer.make_session_run_hook(config.is_chief)]
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, training_hooks=training_hooks
    )


def wait_at_gates(step):
    """Wait at a gate's step until its file is there."""
    for gate in args.gate:
        at, file = gate.split(":")
        deadline = time.monotonic() + 240
        while step >= int(at) and not os.path.exists(file):
            assert time.monotonic() < deadline, f"{file} was not made"
            time.sleep(0.02)


class Tell(tf.estimator.SessionRunHook):
    """Prints each step, which takes its time."""

    def before_run(self, context):
        step = tf.compat.v1.train.get_global_step()
        return tf.compat.v1.train.SessionRunArgs(step)

    def after_run(self, context, values):
        print("step", values.results, flush=True)
        time.sleep(args.step_secs)
        wait_at_gates(values.results)
        if args.stop_at is not None and values.results >= args.stop_at:
            context.request_stop()
        if args.fail_in == "hook" and values.results == 30:
            raise tf.errors.UnavailableError(None, None, "a service that is away")


def input_fn():
    if args.fail_in == "input_fn":
        raise LookupError("there is no input")
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


def serving_input_fn():
    feature = tf.compat.v1.placeholder(tf.float32, [None])
    return tf.estimator.export.ServingInputReceiver({"x": feature}, {"x": feature})


config = tf.estimator.RunConfig(
    args.model_dir,
    save_checkpoints_steps=args.save_steps,
    save_summary_steps=args.log_steps,
    log_step_count_steps=args.log_steps,
    session_creation_timeout_secs=args.timeout_secs,
    train_distribute=strategy,
)
pace = {}
if args.eval_secs is not None:
    pace = {"start_delay_secs": args.eval_secs, "throttle_secs": args.eval_secs}
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(input_fn, max_steps=args.steps, hooks=[Tell()]),
    tf.estimator.EvalSpec(
        input_fn,
        steps=1,
        **pace,
        exporters=tf.estimator.FinalExporter("last", serving_input_fn),
    ),
)
print("done", flush=True)
