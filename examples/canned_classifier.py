"""Reads handwritten digits with a classifier that TensorFlow has ready: no model_fn.

python examples/canned_classifier.py --model_dir runs/canned --max_steps 1000
"""

import argparse

import numpy as np
import tensorflow as tf
from digits import load_digits


def input_fn(images, labels, training):
    """Return batches: endless and shuffled to train, one ordered pass otherwise."""
    return tf.compat.v1.estimator.inputs.numpy_input_fn(
        {"pixels": images.astype(np.float32) / 16},
        labels,
        batch_size=64,
        num_epochs=None if training else 1,
        shuffle=training,
    )


def main():
    """Train, evaluate, and print the held-out accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", default="runs/canned")
    parser.add_argument("--max_steps", type=int, default=1000)
    args = parser.parse_args()

    train_data, held_out_data = load_digits()
    estimator = tf.estimator.DNNClassifier(
        hidden_units=[128, 64],
        feature_columns=[tf.feature_column.numeric_column("pixels", shape=[64])],
        n_classes=10,
        optimizer="Adam",
        dropout=0.2,
        config=tf.estimator.RunConfig(args.model_dir, tf_random_seed=1),
    )
    estimator.train(input_fn(*train_data, training=True), max_steps=args.max_steps)
    metrics = estimator.evaluate(input_fn(*held_out_data, training=False))
    report = "held-out accuracy {accuracy:.3f} after {global_step} steps"
    print(report.format(**metrics))


if __name__ == "__main__":
    main()
