"""Trains without an Estimator: a graph, and a loop around MonitoredTrainingSession.

The session restores and saves checkpoints, writes summaries, and calls hooks. This
example names estimator_runtime itself, for its session; that of TensorFlow,
`tf.compat.v1.train.MonitoredTrainingSession`, takes the same arguments.

    python examples/session_loop.py --model_dir runs/session_loop --max_steps 1000
"""

import argparse

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402 - tf.compat.v1.layers needs the line above
from digits import input_fn, load_digits  # noqa: E402


def scores(pixels):
    """Return one score (logit) per digit."""
    net = tf.cast(pixels, tf.float32) / 16
    net = tf.compat.v1.layers.dense(net, 128, activation=tf.nn.relu, name="hidden")
    return tf.compat.v1.layers.dense(net, 10, name="scores")


def train(images, labels, args):
    """Train from the newest checkpoint in the folder, if there is one, to max_steps."""
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        batches = input_fn(images, labels, 64, training=True)
        features, digits = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
        loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(
            digits, scores(features["pixels"])
        )
        tf.compat.v1.summary.scalar("loss", loss)
        step = tf.compat.v1.train.get_or_create_global_step()
        train_op = tf.compat.v1.train.AdamOptimizer(0.001).minimize(loss, step)
        hooks = [tf.compat.v1.train.StopAtStepHook(last_step=args.max_steps)]
        with er.MonitoredTrainingSession(
            checkpoint_dir=args.model_dir, save_checkpoint_steps=250, hooks=hooks
        ) as session:
            while not session.should_stop():
                session.run(train_op)


def accuracy(images, labels, model_dir):
    """Return (share of images that are read right, step) of the newest checkpoint."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        predicted = tf.argmax(scores(tf.constant(images)), axis=1)
        step = tf.compat.v1.train.get_or_create_global_step()
        newest = tf.train.latest_checkpoint(model_dir)
        tf.compat.v1.train.Saver().restore(session, newest)
        return (session.run(predicted) == labels).mean(), session.run(step)


def main():
    """Train, and print the held-out accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", default="runs/session_loop")
    parser.add_argument("--max_steps", type=int, default=1000)
    args = parser.parse_args()

    train_data, held_out_data = load_digits()
    train(*train_data, args)
    right, step = accuracy(*held_out_data, args.model_dir)
    print(f"held-out accuracy {right:.3f} after {step} steps")


if __name__ == "__main__":
    main()
