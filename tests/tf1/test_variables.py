"""The two kinds of variables that a program of TensorFlow 1 may have."""

import json

import pytest
import tensorflow as tf

PROGRAM = """
import json
import os
import signal

import tensorflow as tf
from tensorflow.python.client import session as client


class Pair:
    parts = tf.constant(1.0), tf.constant(2.0)


client.register_session_run_conversion_functions(Pair, lambda it: (list(it.parts), sum))
tf.logging.set_verbosity(tf.logging.INFO)
is_training = tf.Variable(True, trainable=False, name="is_training")
kept = tf.reduce_mean(tf.layers.dropout(tf.ones([64]), 0.3, training=is_training))
w = tf.get_variable("w", initializer=[3.0, 4.0])
loss = tf.reduce_sum(tf.square(w))
grown = tf.get_variable("grown", initializer=[1, 2])
found = {"kind": w.op.type, "has _ref": hasattr(w, "_ref")}
try:
    grow = tf.assign(grown, [1, 2, 3], validate_shape=False)
except ValueError:
    grow = tf.no_op()
step = tf.train.get_or_create_global_step()
train_op = tf.train.GradientDescentOptimizer(0.001).minimize(loss, step)
with tf.train.MonitoredTrainingSession(
    checkpoint_dir="model", save_checkpoint_steps=100
) as session:
    session.run(grow)
    assert session.run(Pair()) == 3.0
    for name, fetch, feed in [
        ("of a flag", kept, {is_training: False}),
        ("of weights", loss, {w: [1.0, 2.0]}),
    ]:
        try:
            found[name] = float(session.run(fetch, feed))
        except ValueError as error:
            found[name] = f"{type(error).__name__}: {error}"
    found["steps"] = [int(session.run([train_op, step])[1]) for _ in range(1005)]
    print(json.dumps(found), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    while not session.should_stop():
        pass
"""


@pytest.fixture
def outcome(tmp_path, run_tf1):
    """Return a function that runs the program with options.

    It returns what the program has found, its log, the values it saved, and the steps.
    """
    (tmp_path / "train.py").write_text(PROGRAM)

    def outcome(*options):
        done = run_tf1(*options, "train.py", TF_CPP_MIN_LOG_LEVEL="0")
        assert done.returncode == 143, done.stderr
        folder = str(tmp_path / "model")
        saved = tf.train.load_checkpoint(folder)
        values = {name: saved.get_tensor(name).tolist() for name in ("grown", "w")}
        paths = tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths
        steps = [int(path.rpartition("-")[2]) for path in paths]
        return json.loads(done.stdout), done.stderr, values, steps

    return outcome


W = [value * (1 - 0.002) ** 1005 for value in (3.0, 4.0)]
# The last one is of the signal.
STEPS = [700, 800, 900, 1000, 1005]


def test_a_program_gets_reference_variables_as_in_version_1(outcome):
    found, log, values, steps = outcome("--steps-per-run", "100")
    assert found == {
        "kind": "VariableV2",
        "has _ref": True,
        "of a flag": 1.0,
        "of weights": 5.0,
        "steps": list(range(1, 1006)),
    }
    assert values == {"grown": [1, 2, 3], "w": pytest.approx(W, rel=1e-4)}
    assert steps == STEPS
    assert "has a reference variable, '" in log
    assert "(see --tf1-resource-variables)" in log


def test_with_the_option_it_gets_resource_variables_which_cannot_be_fed(outcome):
    found, _, values, steps = outcome("--tf1-resource-variables")
    assert found.pop("steps")[-1] in (1004, 1005)  # from before or after the step
    refused = (
        "ConfigError: feed_dict: the key is the variable {!r}, whose reads a feed does "
        "not replace, because --tf1-resource-variables "
        "(ESTIMATOR_RUNTIME_TF1_RESOURCE_VARIABLES) is on; leave that out, or feed a "
        "tf.placeholder_with_default in place of the variable"
    )
    assert found == {
        "kind": "VarHandleOp",
        "has _ref": False,
        "of a flag": refused.format("is_training:0"),
        "of weights": refused.format("w:0"),
    }
    assert values == {"grown": [1, 2], "w": pytest.approx(W, rel=1e-4)}
    assert steps == STEPS
