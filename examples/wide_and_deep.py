"""Trains a wide and a deep model together, on feature columns of handwritten digits.

The wide half is linear: in which row and which column of an image most of the ink is,
and both crossed. The deep half sees all pixels, and learns a vector (an embedding) for
each such crossing. The best model so far is exported after each evaluation.

    python examples/wide_and_deep.py --model_dir runs/wide_and_deep --max_steps 1000
"""

import argparse

import numpy as np
import tensorflow as tf
from digits import load_digits


def table(images):
    """Return the images as columns of a table, by name."""
    squares = images.reshape(-1, 8, 8).astype(np.int64)
    return {
        "pixels": images.astype(np.float32) / 16,
        "row": squares.sum(axis=2).argmax(axis=1),
        "column": squares.sum(axis=1).argmax(axis=1),
    }


def feature_columns():
    """Return the columns of the wide half, and those of the deep one."""
    row = tf.feature_column.categorical_column_with_identity("row", 8)
    column = tf.feature_column.categorical_column_with_identity("column", 8)
    place = tf.feature_column.crossed_column([row, column], hash_bucket_size=500)
    pixels = tf.feature_column.numeric_column("pixels", shape=[64])
    wide = [row, column, place]
    deep = [pixels, tf.feature_column.embedding_column(place, dimension=8)]
    return wide, deep


def input_fn(images, labels, batch_size, training):
    """Return batches: endless and shuffled to train, one ordered pass otherwise."""
    dataset = tf.data.Dataset.from_tensor_slices((table(images), labels))
    if training:
        dataset = dataset.shuffle(len(labels)).repeat()
    return dataset.batch(batch_size)


def main():
    """Train, evaluate along the way, and print the held-out accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", default="runs/wide_and_deep")
    parser.add_argument("--max_steps", type=int, default=1000)
    args = parser.parse_args()

    train_data, held_out_data = load_digits()
    wide, deep = feature_columns()
    config = tf.estimator.RunConfig(
        model_dir=args.model_dir, tf_random_seed=1, save_checkpoints_steps=250
    )
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide,
        linear_optimizer="Ftrl",
        dnn_feature_columns=deep,
        dnn_optimizer="Adam",
        dnn_hidden_units=[128, 64],
        dnn_dropout=0.2,
        n_classes=10,
        config=config,
    )
    # What is asked of the exported model: serialized tf.train.Examples of the columns.
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(
        tf.feature_column.make_parse_example_spec([*wide, *deep])
    )
    eval_spec = tf.estimator.EvalSpec(
        lambda: input_fn(*held_out_data, 64, training=False),
        steps=None,  # All of the held-out images.
        exporters=tf.estimator.BestExporter(serving_input_receiver_fn=receiver),
        start_delay_secs=0,
        throttle_secs=0,
    )
    train_spec = tf.estimator.TrainSpec(
        lambda: input_fn(*train_data, 64, training=True), max_steps=args.max_steps
    )
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)

    if config.is_chief:  # In a cluster one task reports for all.
        metrics = estimator.evaluate(eval_spec.input_fn)
        report = "held-out accuracy {accuracy:.3f} after {global_step} steps"
        print(report.format(**metrics))


if __name__ == "__main__":
    main()
