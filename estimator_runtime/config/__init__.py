"""The settings of a user, parsed and checked once, without TensorFlow."""
