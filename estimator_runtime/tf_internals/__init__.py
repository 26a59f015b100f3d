"""Private names of TensorFlow, and the versions that the runtime knows."""
