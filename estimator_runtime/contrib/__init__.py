"""Interfaces of `tf.contrib`, which TensorFlow 2 removed.

They exist so that programs written against them still run. An interface that has a
successor names it, and gets no new features.
"""
