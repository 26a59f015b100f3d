"""tf_random_seed: equal seeds give equal runs, to the bit.

Losses and variables are compared between two runs in this process and a run in
another one: this file, run as a script.
"""

import concurrent.futures
import hashlib
import json
import pathlib
import random
import tempfile

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

STEPS = 40


def layers_model_fn(features, labels, mode):
    """One hidden layer of tf.compat.v1.layers, with dropout."""
    hidden = tf.compat.v1.layers.dense(features["pixels"], 16, tf.nn.relu)
    hidden = tf.compat.v1.layers.dropout(hidden, 0.3, training=mode == "train")
    return _spec(tf.compat.v1.layers.dense(hidden, 10), labels, mode)


def keras_model_fn(features, labels, mode):
    """One hidden layer of Keras, with dropout."""
    hidden = tf.keras.layers.Dense(16, activation="relu")(features["pixels"])
    hidden = tf.keras.layers.Dropout(0.3)(hidden, training=mode == "train")
    return _spec(tf.keras.layers.Dense(10)(hidden), labels, mode)


def _spec(logits, labels, mode):
    if labels is None:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.005)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def canned(config):
    """A DNNClassifier with dropout."""
    return tf.estimator.DNNClassifier(
        hidden_units=[16],
        feature_columns=[tf.feature_column.numeric_column("pixels", shape=64)],
        n_classes=10,
        dropout=0.3,
        config=config,
    )


MODELS = {
    "v1 layers": lambda config: tf.estimator.Estimator(layers_model_fn, config=config),
    "keras layers": lambda config: tf.estimator.Estimator(
        keras_model_fn, config=config
    ),
    "canned": canned,
}


def train(digits, model, seed):
    """Train a model from the start.

    Returns:
        Its loss at each step, and a digest of each variable after the last.
    """
    with tempfile.TemporaryDirectory() as model_dir:
        estimator = MODELS[model](
            tf.estimator.RunConfig(model_dir, tf_random_seed=seed, save_summary_steps=1)
        )
        estimator.train(digits.to_train(batch_size=32), steps=STEPS)
        variables = {
            name: hashlib.sha256(
                estimator.get_variable_value(name).tobytes()
            ).hexdigest()
            for name in estimator.get_variable_names()
        }
        (events,) = pathlib.Path(model_dir).glob("events.*")
        losses = [
            value.simple_value
            for event in tf.compat.v1.train.summary_iterator(str(events))
            for value in event.summary.value
            if value.tag == "loss"
        ]
    return {"losses": losses, "variables": variables}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """The name of each model in turn."""
    return request.param


@pytest.fixture(scope="module")
def run(digits, model):
    """A run of the model with seed 7 in this process."""
    return train(digits, model, seed=7)


@pytest.fixture(scope="module")
def another_process(run_python):
    """What a process of its own prints: a run of each model with seed 7."""
    program = run_python(__file__)
    assert program.returncode == 0, program.stderr
    return json.loads(program.stdout.splitlines()[-1])


def test_an_equal_seed_gives_an_equal_run_in_another_process(
    model, run, another_process
):
    assert len(run["losses"]) == STEPS
    assert another_process[model] == run


def test_another_seed_gives_other_losses_and_variables(digits, model, run):
    other = train(digits, model, seed=8)

    assert other["losses"][0] != run["losses"][0]
    changed = {n for n, v in run["variables"].items() if other["variables"][n] != v}
    kernels = {name for name in run["variables"] if "kernel" in name}
    assert kernels
    assert kernels <= changed


# Keras 2.15 calls randint(1, 1e9) of its own generator, the one this test draws from.
@pytest.mark.filterwarnings("ignore:non-integer arguments to randrange")
def test_a_program_that_seeds_keras_goes_on_with_its_own_numbers(
    digits, model, tmp_path
):
    def draws(count):
        initializers = [tf.keras.initializers.GlorotUniform() for _ in range(count)]
        return [initialize([3]).numpy().tolist() for initialize in initializers]

    def program():
        tf.keras.utils.set_random_seed(5)
        before = draws(2)
        python_state, (kind, keys, *rest) = random.getstate(), np.random.get_state()
        config = tf.estimator.RunConfig(tmp_path, tf_random_seed=7)
        estimator = MODELS[model](config)
        estimator.train(digits.to_train(), steps=2)
        estimator.evaluate(digits.held_out())
        next(estimator.predict(lambda: digits.held_out()().map(lambda x, _: x)))
        assert random.getstate() == python_state
        kind_after, keys_after, *rest_after = np.random.get_state()
        assert (kind_after, rest_after) == (kind, rest)
        np.testing.assert_array_equal(keys_after, keys)
        return before + draws(2)

    def program_without_training():
        tf.keras.utils.set_random_seed(5)
        return draws(4)

    # Keras has a generator per thread: this one leaves the other tests' alone.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        trained = thread.submit(program).result()
        untrained = thread.submit(program_without_training).result()
    assert trained == untrained


def main():
    """Train each model, and print the runs as JSON."""
    from conftest import load_digits  # beside this script

    digits = load_digits()
    print(json.dumps({model: train(digits, model, seed=7) for model in MODELS}))


if __name__ == "__main__":
    main()
