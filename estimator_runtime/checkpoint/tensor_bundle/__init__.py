"""The files of one checkpoint: read without TensorFlow, and written by our own code."""
