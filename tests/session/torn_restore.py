"""A task of a training that a test interrupts while it restores."""

import argparse
import json
import os
import signal
import time

import tensorflow as tf
from tensorflow.python.ops import lookup_ops

import estimator_runtime as er

parser = argparse.ArgumentParser()
parser.add_argument("interrupted", nargs="?")
parser.add_argument("--only_table_on_ps_1", action="store_true")
args = parser.parse_args()

er.install()
tf1 = tf.compat.v1
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
server = tf.distribute.Server(config["cluster"], task["type"], task["index"])
if task["type"] == "ps":
    server.join()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class InterruptedSaver(tf1.train.Saver):
    """A Saver that is interrupted in the first restore."""

    interrupted = args.interrupted

    def restore(self, session, path):
        interrupted, self.interrupted = self.interrupted, None
        if interrupted == "before any value is restored":
            die()
        for index, saver in parts.items():
            if interrupted == f"after those of ps {index}":
                saver.restore(session, path)
                die()
            if interrupted == f"by an error after those of ps {index}":
                saver.restore(session, path)
                raise tf.errors.UnavailableError(None, None, "as where ps 0 is lost")
        super().restore(session, path)
        if interrupted == "after all":
            die()


class Sessions(tf1.train.SessionRunHook):
    """Counts the sessions that were made."""

    count = 0

    def after_create_session(self, session, coord):
        self.count += 1


with tf.Graph().as_default():
    places = [0] * 4 if args.only_table_on_ps_1 else [0, 1] * 2
    with tf.device("/job:ps/task:0"):
        step = tf1.train.create_global_step()
    next_step = step + 1
    numbers, updates = [], [step.assign(next_step)]
    for number, index in enumerate(places):
        with tf.device(f"/job:ps/task:{index}"):
            numbers.append(tf1.get_variable(f"v{number}", initializer=0))
            updates.append(numbers[-1].assign(tf.cast(next_step, tf.int32)))
    with tf.device("/job:ps/task:1"):
        table = lookup_ops.MutableHashTable(tf.int64, tf.int64, 0, name="table")
        key = tf.constant(0, tf.int64)
        updates.append(table.insert(key, next_step))
        numbers.append(table.lookup(key))
    parts = {}
    for index in (0, 1):
        of_ps = [
            each
            for each in tf1.global_variables()
            if each.device.startswith(f"/job:ps/task:{index}")
        ]
        if of_ps:
            parts[index] = tf1.train.Saver(of_ps)
    scaffold = tf1.train.Scaffold(saver=InterruptedSaver(save_relative_paths=True))
    train_op = tf.group(*updates)
    sessions = Sessions()
    with er.MonitoredTrainingSession(
        server.target,
        scaffold=scaffold,
        checkpoint_dir="model",
        save_checkpoint_steps=10,
        save_summaries_steps=None,
        log_step_count_steps=None,
        hooks=[sessions],
    ) as session:

        def values():
            return [int(each) for each in session.run([step, *numbers])]

        if args.interrupted:
            while values()[0] < 15:
                session.run(train_op)
            print("trained to 15", flush=True)
            while sessions.count < 2:
                values()
                time.sleep(0.05)
        if args.interrupted == "in a later step":
            while values()[0] < 13:
                session.run(train_op)
            die()
        print("began with", values(), flush=True)
