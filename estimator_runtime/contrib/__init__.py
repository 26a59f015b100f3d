"""Interfaces older than `tf.estimator`, removed from TensorFlow with tf.contrib.

They exist so that programs written against them still run. They get no new features,
and each names its successor.
"""
