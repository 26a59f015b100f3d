"""What third-party programs do with Estimators beside calling them, each in small."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime as er

er.install()

DATA = np.linspace(0, 1, 32, dtype=np.float32).reshape(16, 2)


def input_fn(params=None):
    batch = (params or {}).get("batch_size", 16)
    data = tf.data.Dataset.from_tensor_slices(({"x": DATA}, DATA.sum(1)))
    return data.repeat().batch(batch, drop_remainder=True)


def model_fn(features, labels, mode):
    prediction = tf.compat.v1.layers.dense(features["x"], 1)[:, 0]
    loss = labels if labels is None else tf.reduce_mean((prediction - labels) ** 2)
    step = tf.compat.v1.train.get_global_step()
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    return tf.estimator.EstimatorSpec(
        mode,
        predictions={"y": prediction},
        loss=loss,
        train_op=None if loss is None else optimizer.minimize(loss, step),
    )


def test_a_member_that_stock_protects_is_overridden_once_its_guard_is_patched_away(
    monkeypatch, tmp_path
):
    from tensorflow_estimator.python.estimator import estimator as frozen

    class Own(tf.compat.v1.estimator.Estimator):
        def evaluate(self, *args, **kwargs):
            return {"own": 1}

    with pytest.raises(ValueError, match="cannot override"):
        Own(model_fn, str(tmp_path))
    monkeypatch.setattr(
        frozen.Estimator, "_assert_members_are_not_overridden", lambda self: None
    )
    own = Own(model_fn, str(tmp_path)).train(input_fn, steps=2)
    assert own.evaluate(input_fn) == {"own": 1}


def test_a_program_replaces_the_executor_and_train_and_evaluate_uses_it(
    monkeypatch, tmp_path
):
    from tensorflow.python.estimator import training

    seen = []

    class Executor(training._TrainingExecutor):
        def run(self):
            seen.append(type(self).__name__)
            return super().run()

    monkeypatch.setattr(training, "_TrainingExecutor", Executor)
    metrics, _ = tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, str(tmp_path)),
        tf.estimator.TrainSpec(input_fn, max_steps=3),
        tf.estimator.EvalSpec(input_fn, steps=1),
    )
    assert (seen, metrics["global_step"]) == (["Executor"], 3)


def test_what_the_runtime_replaced_survives_being_patched(monkeypatch, tmp_path):
    from tensorflow_estimator.python.estimator import run_config

    class Own(run_config.RunConfig):
        pass

    monkeypatch.setattr(run_config, "RunConfig", Own)
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    assert type(estimator.config) is Own and isinstance(estimator.config, er.RunConfig)
    assert estimator.train(input_fn, steps=1).latest_checkpoint().endswith("ckpt-1")


@pytest.mark.parametrize("method", ["train", "evaluate", "predict"])
def test_wrong_arguments_are_refused_at_the_call_as_pythons_own(method, tmp_path):
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    words = rf"Estimator\.{method}\(\) got an unexpected keyword argument 'hook'"
    with pytest.raises(TypeError, match=words):
        getattr(estimator, method)(input_fn, hook=[])


PROGRAMS = {
    "putting modules into sys.modules itself": """
import sys
import tensorflow as tf
from tensorflow_estimator.python import estimator
sys.modules["tensorflow.python.estimator"] = estimator
sys.modules["tensorflow.estimator"] = tf.estimator
from tensorflow.python.estimator.estimator import Estimator
import tensorflow.estimator
print(Estimator is tf.compat.v1.estimator.Estimator)
""",
    "a session maker of its own, put in place before Estimators are used": """
import tempfile
import tensorflow as tf
from tensorflow.python.training import training
made = []
original = training.MonitoredTrainingSession
def own(*args, **kwargs):
    made.append(kwargs["checkpoint_dir"])
    return original(*args, **kwargs)
training.MonitoredTrainingSession = own
estimator = tf.estimator.BaselineRegressor(model_dir=tempfile.mkdtemp())
data = tf.data.Dataset.from_tensors
estimator.train(lambda: data(({"x": [1.0]}, [1.0])), steps=1)
print(made == [estimator.model_dir])
""",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_an_unchanged_program_runs_that_does(what, run_script, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAMS[what])
    done = run_script("program.py", cwd=tmp_path)
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr
