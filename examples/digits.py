"""Trains an Estimator to read handwritten digits and prints how well it does.

Each example is an 8x8 image whose pixels are whole numbers from 0 to 16. Of the
1,797 images 1,500 train the model; the other 297 are held out to measure it.
Checkpoints, TensorBoard summaries and the exported model go to --model_dir. Run
it again with the same folder and it goes on from the newest checkpoint there.

    python examples/digits.py --model_dir runs/digits --max_steps 2000
"""

import argparse
import gzip
import os

import numpy as np
import tensorflow as tf

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv.gz")
TRAINING_EXAMPLES = 1500


def load_digits():
    """Return (images, labels) to train on and (images, labels) held out."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int32)
    # Not --seed: a run resumed with another seed must hold out the same images.
    table = table[np.random.RandomState(0).permutation(len(table))]
    images, labels = table[:, :64].astype(np.uint8), table[:, 64]
    training, held_out = slice(TRAINING_EXAMPLES), slice(TRAINING_EXAMPLES, None)
    return (images[training], labels[training]), (images[held_out], labels[held_out])


def input_fn(images, labels, batch_size, training):
    """Return batches: endless and shuffled to train, one ordered pass otherwise."""
    dataset = tf.data.Dataset.from_tensor_slices(({"pixels": images}, labels))
    if training:
        dataset = dataset.shuffle(len(labels)).repeat()
    return dataset.batch(batch_size)


def serving_input_fn():
    """Return the input of the exported model: any number of images, 64 pixels each."""
    pixels = tf.compat.v1.placeholder(tf.uint8, [None, 64], name="pixels")
    features = {"pixels": pixels}
    return tf.estimator.export.ServingInputReceiver(features, features)


def model_fn(features, labels, mode, params):
    """Two dense layers with dropout, then one score (logit) per digit."""
    training = mode == tf.estimator.ModeKeys.TRAIN
    net = tf.cast(features["pixels"], tf.float32) / 16.0
    for units in params["hidden_units"]:
        net = tf.compat.v1.layers.dense(net, units, activation=tf.nn.relu)
        net = tf.compat.v1.layers.dropout(net, params["dropout"], training=training)
    logits = tf.compat.v1.layers.dense(net, 10)

    digit = tf.argmax(logits, axis=1, output_type=tf.int32)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"digit": digit, "probabilities": tf.nn.softmax(logits)}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)

    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.compat.v1.metrics.accuracy(labels, digit)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    correct = tf.cast(tf.equal(labels, digit), tf.float32)
    tf.compat.v1.summary.scalar("batch_accuracy", tf.reduce_mean(correct))
    optimizer = tf.compat.v1.train.AdamOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    """Train, evaluate along the way, export, and print the held-out accuracy."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model_dir", default="runs/digits", help="output folder")
    parser.add_argument("--max_steps", type=int, default=2000, help="last step")
    parser.add_argument("--batch_size", type=int, default=64, help="images a step")
    parser.add_argument(
        "--save_checkpoints_steps", type=int, default=500, help="steps between saves"
    )
    parser.add_argument("--seed", type=int, default=1, help="TensorFlow's random seed")
    args = parser.parse_args()

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    train_data, held_out_data = load_digits()
    config = tf.estimator.RunConfig(
        model_dir=args.model_dir,
        tf_random_seed=args.seed,
        save_checkpoints_steps=args.save_checkpoints_steps,
    )
    params = {"hidden_units": [128, 64], "dropout": 0.3, "learning_rate": 0.001}
    estimator = tf.estimator.Estimator(model_fn, config=config, params=params)

    train_spec = tf.estimator.TrainSpec(
        lambda: input_fn(*train_data, args.batch_size, training=True),
        max_steps=args.max_steps,
    )
    eval_spec = tf.estimator.EvalSpec(
        lambda: input_fn(*held_out_data, args.batch_size, training=False),
        steps=None,  # All of the held-out images.
        exporters=tf.estimator.FinalExporter("digits", serving_input_fn),
        start_delay_secs=0,
        throttle_secs=0,
    )
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)

    if config.is_chief:  # In a cluster one task reports for all.
        metrics = estimator.evaluate(eval_spec.input_fn)
        report = "held-out accuracy {accuracy:.3f} after {global_step} steps"
        print(report.format(**metrics))


if __name__ == "__main__":
    main()
