"""Trains on a machine that is taken away: run it twice with the same --model_dir.

The first run gets SIGTERM after --preempt_at_step, as on a spot machine that somebody
else needs. The second run goes on, and ends. It prints from which step: with plain
TensorFlow, which SIGTERM ends at once, from the last checkpoint; under
`estimator-runtime run` from the step at which it was stopped.

    python examples/preemption.py --model_dir runs/preemption
"""

import argparse
import os
import signal

import tensorflow as tf
from digits import input_fn, load_digits, model_fn


class Preemption(tf.estimator.SessionRunHook):
    """Sends this process SIGTERM after a step, unless it has begun behind it."""

    def __init__(self, step):
        """Take the step, a number above 0."""
        self._step = step

    def begin(self):
        """Find the step counter in the graph."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session, coord):
        """Say where the training goes on from."""
        start = session.run(self._global_step)
        print(f"training from step {start}", flush=True)
        self._is_due = start == 0

    def before_run(self, run_context):
        """Ask for the step counter."""
        return tf.estimator.SessionRunArgs(self._global_step)

    def after_run(self, run_context, run_values):
        """Take the machine away."""
        if self._is_due and run_values.results >= self._step:
            self._is_due = False
            os.kill(os.getpid(), signal.SIGTERM)


def main():
    """Train, and print the held-out accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", default="runs/preemption")
    parser.add_argument("--max_steps", type=int, default=1000)
    parser.add_argument("--preempt_at_step", type=int, default=350)
    args = parser.parse_args()

    train_data, held_out_data = load_digits()
    estimator = tf.estimator.Estimator(
        model_fn,  # That of digits.py.
        config=tf.estimator.RunConfig(
            model_dir=args.model_dir, tf_random_seed=1, save_checkpoints_steps=200
        ),
        params={"hidden_units": [128, 64], "dropout": 0.3, "learning_rate": 0.001},
    )
    estimator.train(
        lambda: input_fn(*train_data, 64, training=True),
        max_steps=args.max_steps,
        hooks=[Preemption(args.preempt_at_step)],
    )
    metrics = estimator.evaluate(lambda: input_fn(*held_out_data, 64, training=False))
    report = "held-out accuracy {accuracy:.3f} after {global_step} steps"
    print(report.format(**metrics))


if __name__ == "__main__":
    main()
