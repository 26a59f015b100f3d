"""Private names and attributes of TensorFlow, and the versions of it that we know."""
