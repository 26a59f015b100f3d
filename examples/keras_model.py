"""Trains a Keras model as an Estimator, and lets it name some digits.

`model_to_estimator` makes an Estimator of a compiled Keras model: RunConfig,
checkpoints, summaries and clusters are then those of any Estimator.

    python examples/keras_model.py --model_dir runs/keras_model --max_steps 1000
"""

import argparse

import tensorflow as tf
from digits import input_fn, load_digits


def build_model():
    """Return a compiled model; its input has the name of the feature it takes."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input([64], name="pixels"),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(10, activation="softmax", name="probabilities"),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.legacy.Adam(0.001),  # Those that Estimators take.
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def scaled_input_fn(images, labels, batch_size, training):
    """Return the batches of digits.py, with pixels from 0 to 1."""

    def scale(features, labels):
        return {"pixels": tf.cast(features["pixels"], tf.float32) / 16}, labels

    return input_fn(images, labels, batch_size, training).map(scale)


def main():
    """Train, print the held-out accuracy, and the digits that some images show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", default="runs/keras_model")
    parser.add_argument("--max_steps", type=int, default=1000)
    args = parser.parse_args()

    # The weights are drawn here, so RunConfig(tf_random_seed) comes too late for them.
    tf.keras.utils.set_random_seed(1)
    train_data, held_out_data = load_digits()
    estimator = tf.keras.estimator.model_to_estimator(
        build_model(),
        config=tf.estimator.RunConfig(
            model_dir=args.model_dir, tf_random_seed=1, save_checkpoints_steps=500
        ),
    )
    estimator.train(
        lambda: scaled_input_fn(*train_data, 64, training=True),
        max_steps=args.max_steps,
    )
    metrics = estimator.evaluate(
        lambda: scaled_input_fn(*held_out_data, 64, training=False)
    )
    report = "held-out accuracy {accuracy:.3f} after {global_step} steps"
    print(report.format(**metrics))

    images, labels = (each[:8] for each in held_out_data)
    predictions = estimator.predict(
        lambda: scaled_input_fn(images, labels, 8, training=False)
    )
    print("read", *[each["probabilities"].argmax() for each in predictions])
    print("true", *labels)


if __name__ == "__main__":
    main()
