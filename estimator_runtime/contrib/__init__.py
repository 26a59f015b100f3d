"""Interfaces older than `tf.estimator`, which left TensorFlow together with tf.contrib.

They are here so that programs written against them still run; nothing new is added
to them, and each names its successor.
"""
