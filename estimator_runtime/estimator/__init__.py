"""What the frozen package is given to run on today's TensorFlow."""
