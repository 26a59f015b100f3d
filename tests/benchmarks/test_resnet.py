"""The model for GPUs is ResNet-50; it is not trained here."""

import numpy as np
import tensorflow as tf

import estimator_runtime
from benchmarks.training.resnet import RESNET

estimator_runtime.install()


def test_the_large_model_has_the_53_convolutions_and_the_variables_of_resnet_50():
    with tf.Graph().as_default() as graph:
        images = tf.zeros([2, 224, 224, 3], tf.uint8)
        labels = tf.zeros([2], tf.int32)
        tf.compat.v1.train.create_global_step()
        estimator = RESNET.estimator(None)
        estimator.model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, None)
        variables = tf.compat.v1.trainable_variables()
    assert sum(np.prod(v.shape.as_list()) for v in variables) == 25_557_032
    convolutions = [op for op in graph.get_operations() if op.type == "Conv2D"]
    assert len(convolutions) == 53
    assert {op.outputs[0].dtype for op in convolutions} == {tf.bfloat16}
    assert {v.dtype.base_dtype for v in variables} == {tf.float32}
