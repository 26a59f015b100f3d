"""Programs in the style of 2018, with the original `tf.contrib`, train in this runtime."""

import re

import pytest
import tensorflow as tf

pytestmark = pytest.mark.long("whole programs, some of them clusters")

# A canned Estimator of contrib.learn with crossed columns, in an Experiment.
EXPERIMENT = """
import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, learn
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.contrib.learn.python.learn.utils import input_fn_utils


def input_fn():
    x = np.linspace(-1, 1, 32).astype("f")[:, None]
    words = [["a", "b", "c", "d"][n % 4] for n in range(32)]
    features = {
        "x": tf.constant(x),
        "w": tf.SparseTensor([[n, 0] for n in range(32)], words, [32, 1]),
    }
    return features, tf.constant((x > 0).astype("i4"))


def experiment_fn(run_config, hparams):
    x = layers.real_valued_column("x")
    word = layers.sparse_column_with_hash_bucket("w", 20)
    ranges = layers.bucketized_column(x, [-0.5, 0.0, 0.5])
    estimator = learn.DNNLinearCombinedClassifier(
        config=run_config,
        linear_feature_columns=[layers.crossed_column([word, ranges], 50)],
        dnn_feature_columns=[x, layers.embedding_column(word, 4)],
        dnn_hidden_units=hparams.units,
        fix_global_step_increment_bug=True,
    )
    spec = layers.create_feature_spec_for_parsing([x, word])
    return learn.Experiment(
        estimator,
        input_fn,
        input_fn,
        train_steps=60,
        eval_steps=1,
        eval_delay_secs=0,
        export_strategies=learn.make_export_strategy(
            input_fn_utils.build_parsing_serving_input_fn(spec)
        ),
    )


def main(_):
    config = learn.RunConfig(model_dir="model", save_checkpoints_steps=20)
    hparams = tf.contrib.training.HParams(units=[8, 4])
    result = learn_runner.run(experiment_fn, run_config=config, hparams=hparams)
    if isinstance(result, tuple):
        print("metrics", result[0]["accuracy"], result[0]["global_step"])


tf.app.run()
"""
# Boxes on a network of slim, by its own training loop.
DETECTION = """
import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib.slim.nets import resnet_v2

images = np.zeros([4, 33, 33, 3], "f")
boxes = np.array([[4, 4], [20, 6], [8, 20], [18, 18]], "f")
for image, (x, y) in zip(images, boxes):
    image[int(y) : int(y) + 8, int(x) : int(x) + 8] = 1

with slim.arg_scope(resnet_v2.resnet_arg_scope(batch_norm_decay=0.9)):
    blocks = [resnet_v2.resnet_v2_block("block1", base_depth=4, num_units=1, stride=2)]
    net, _ = resnet_v2.resnet_v2(tf.constant(images), blocks, is_training=True, global_pool=False)
net = slim.flatten(net)
centers = slim.fully_connected(net, 2, activation_fn=None, scope="centers")
tf.losses.huber_loss(boxes / 33, centers)
restored = slim.get_variables_to_restore(include=["centers"])
print("variables", sorted(v.op.name for v in restored))
total = tf.losses.get_total_loss()
step = slim.get_or_create_global_step()
train_op = slim.learning.create_train_op(total, tf.train.AdamOptimizer(0.01), step)
loss = slim.learning.train(train_op, "model", number_of_steps=40, log_every_n_steps=0)
print("loss", loss)
"""


@pytest.fixture
def start(launch, original_contrib, tmp_path):
    """Return a function that starts a program in TensorFlow 1 mode."""

    def start(source, *options):
        (tmp_path / "train.py").write_text(source)
        return launch("--tf1", *options, **original_contrib)

    return start


def test_an_experiment_trains_evaluates_and_exports(start, tmp_path):
    job = start(EXPERIMENT, "train.py")
    assert job.end() == 0, job.text
    [(accuracy, step)] = re.findall(r"^metrics (\S+) (\d+)$", job.text, re.M)
    assert (float(accuracy) > 0.9, step) == (True, "60")
    assert len(list((tmp_path / "model/export/Servo").iterdir())) == 1
    index = tf.train.latest_checkpoint(tmp_path / "model")
    assert tf.train.load_checkpoint(index).get_tensor("global_step") == 60


def test_boxes_are_detected_by_the_training_loop_of_slim(start):
    job = start(DETECTION, "train.py")
    assert job.end() == 0, job.text
    [loss] = re.findall(r"^loss (\S+)$", job.text, re.M)
    assert float(loss) < 0.1
    assert "variables ['centers/biases', 'centers/weights']" in job.text
