"""Programs that train with TensorFlow's own session, without an Estimator."""

import pytest
import tensorflow as tf

_PROGRAM = """
import os, signal
import tensorflow as tf
train = tf.compat.v1.train
with tf.Graph().as_default():
    add = train.get_or_create_global_step().assign_add(1)
    with train.MonitoredTrainingSession(checkpoint_dir="model") as session:
        while not session.should_stop():
            if session.run(add) == 3:
                os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("keeps_stock", "status", "step"), [("0", 143, 3), ("1", -15, 0)]
)
def test_a_signal_saves_the_last_step_under_run_unless_the_session_stays_stock(
    run_script, tmp_path, keeps_stock, status, step
):
    (tmp_path / "train.py").write_text(_PROGRAM)
    variable = {"ESTIMATOR_RUNTIME_STOCK_SESSION": keeps_stock}
    done = run_script("train.py", cwd=tmp_path, **variable)
    assert done.returncode == status, done.stderr
    checkpoint = tf.train.load_checkpoint(str(tmp_path / "model"))
    assert checkpoint.get_tensor("global_step") == step
