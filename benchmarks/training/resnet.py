"""ResNet-50 on random images: a model that fills a GPU.

A CPU takes about a minute for a step, so this model is measured only on request.
"""

import numpy as np
import tensorflow as tf

from benchmarks.training.models import Model

tf1 = tf.compat.v1
_BATCH_SIZE = 256
_IMAGES = 1024
_CLASSES = 1000
# Blocks and filters of each stage (He et al., 2015, table 1).
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
# The variables stay float32; the rewrite to float16 would need another optimizer.
_DTYPE = tf.bfloat16


def _data():
    random = np.random.RandomState(0)
    images = random.randint(0, 256, (_IMAGES, 224, 224, 3), np.uint8)
    return images, random.randint(0, _CLASSES, _IMAGES, np.int32)


def _variable(getter, *args, dtype=None, **kwargs):
    """Make a float32 variable, and return it in the type of the computation."""
    variable = getter(*args, dtype=tf.float32, **kwargs)
    return variable if dtype == tf.float32 else tf.cast(variable, dtype)


def _normalized(net, activation=tf.nn.relu):
    # In float32, as its fused kernel asks for.
    net = tf1.layers.batch_normalization(tf.cast(net, tf.float32), training=True)
    return activation(tf.cast(net, _DTYPE))


def _convolution(net, filters, size, strides=1):
    return tf1.layers.conv2d(
        net, filters, size, strides, padding="same", use_bias=False
    )


def _block(net, filters, strides):
    shortcut = net
    if net.shape[-1] != 4 * filters:
        shortcut = _convolution(net, 4 * filters, 1, strides)
        shortcut = _normalized(shortcut, tf.identity)
    net = _normalized(_convolution(net, filters, 1))
    net = _normalized(_convolution(net, filters, 3, strides))
    net = _normalized(_convolution(net, 4 * filters, 1), tf.identity)
    return tf.nn.relu(net + shortcut)


def _network(images):
    with tf1.variable_scope("resnet50", custom_getter=_variable):
        net = tf.cast(images, _DTYPE) / 255
        net = _normalized(_convolution(net, 64, 7, 2))
        net = tf1.layers.max_pooling2d(net, 3, 2, padding="same")
        for stage, (blocks, filters) in enumerate(_STAGES):
            for block in range(blocks):
                net = _block(net, filters, 2 if stage and not block else 1)
        logits = tf1.layers.dense(tf.reduce_mean(net, [1, 2]), _CLASSES)
    return tf.cast(logits, tf.float32)


def _estimator(config):
    def model_fn(features, labels, mode):
        logits = _network(features)
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, tf1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return tf.estimator.Estimator(model_fn, config=config)


RESNET = Model(
    title=f"ResNet-50, {_BATCH_SIZE} images of 224x224 a step, bfloat16, momentum",
    data=_data,
    estimator=_estimator,
    keras=None,
    batch_size=_BATCH_SIZE,
)
